// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/reconcile"
)

// peers are the operations for so many peers with a lease of each family.
type peers struct {
	neighbours []delta.Op[topology.NeighbourKey, topology.Neighbour]
	fdb        []delta.Op[topology.FDBKey, topology.FDB]
	routes     []delta.Op[topology.RouteKey, topology.Route]
}

func newPeers(n int) (p peers) {
	const dev = topology.VXLANDevice4
	for i := range n {
		hi, lo := byte(i>>8), byte(i)
		mac := attach.MAC{0x9a, 0, 0, 0, hi, lo}
		p.fdb = append(p.fdb, delta.Op[topology.FDBKey, topology.FDB]{
			Verb: delta.Add, Key: topology.FDBKey{Dev: dev, MAC: mac}, Want: topology.FDB{Dst: netip.AddrFrom4([4]byte{198, 18, hi, lo})},
		})
		for _, s := range []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, hi, lo, 0}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 6: hi, 7: lo}), 64),
		} {
			gateway := s.Addr().Next()
			p.neighbours = append(p.neighbours, delta.Op[topology.NeighbourKey, topology.Neighbour]{
				Verb: delta.Add, Key: topology.NeighbourKey{Dev: dev, Addr: gateway}, Want: topology.Neighbour{MAC: mac},
			})
			p.routes = append(p.routes, delta.Op[topology.RouteKey, topology.Route]{
				Verb: delta.Add, Key: topology.RouteKey{Dst: s}, Want: topology.Route{Gateway: gateway, Dev: dev},
			})
		}
	}
	return p
}

func timed[K delta.Key[K], V comparable](b *testing.B, d reconcile.Driver[K, V], ops []delta.Op[K, V], name string) {
	start := time.Now()
	err := errors.Join(d.Apply(ops)...)
	b.ReportMetric(float64(time.Since(start).Milliseconds()), name+"-apply-ms")
	if err != nil {
		b.Fatal(err)
	}
	start = time.Now()
	all, err := d.Observe()
	b.ReportMetric(float64(time.Since(start).Milliseconds()), name+"-observe-ms")
	if err != nil || len(all) != len(ops) {
		b.Fatalf("%d observed, error %v, want %d", len(all), err, len(ops))
	}
}

// BenchmarkPeers5000 programs dual-stack VXLAN peers from nothing.
func BenchmarkPeers5000(b *testing.B) {
	p := newPeers(5000)
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b)
		w.devices(topology.VXLANDevice4)
		b.StartTimer()
		timed(b, w.h.FabricNeighbours(), p.neighbours, "neighbours")
		timed(b, w.h.FDB(), p.fdb, "fdb")
		timed(b, w.h.FabricRoutes(), p.routes, "routes")
	}
}

// BenchmarkPeerEvent5000 changes one peer among so many.
func BenchmarkPeerEvent5000(b *testing.B) {
	p := newPeers(5000)
	w := newWorld(b)
	w.devices(topology.VXLANDevice4)
	neighbours, fdb, routes := w.h.FabricNeighbours(), w.h.FDB(), w.h.FabricRoutes()
	if err := errors.Join(append(append(neighbours.Apply(p.neighbours), fdb.Apply(p.fdb)...), routes.Apply(p.routes)...)...); err != nil {
		b.Fatal(err)
	}
	n, f, r := p.neighbours[:2], p.fdb[:1], p.routes[:2]
	for b.Loop() {
		for _, verb := range []delta.Verb{delta.Delete, delta.Add} {
			n[0].Verb, n[1].Verb, f[0].Verb, r[0].Verb, r[1].Verb = verb, verb, verb, verb, verb
			r[0].Have, r[1].Have = r[0].Want, r[1].Want
			if err := errors.Join(append(append(neighbours.Apply(n), fdb.Apply(f)...), routes.Apply(r)...)...); err != nil {
				b.Fatal(err)
			}
		}
	}
}
