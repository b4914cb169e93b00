// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
)

// Whatever the cluster and the node do, whatever fails and however, and
// whatever others do to the kernel, told or not: once things work, the kernel
// holds exactly what Compute says, and nobody else's objects were touched.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{world: newWorld()}
		m.leftovers()
		t.Repeat(map[string]func(*rapid.T){
			"node":   m.setNode,
			"lease":  m.setLease,
			"synced": func(*rapid.T) { m.store.Synced(m.now); m.synced = true },
			"self":   m.setSelf,
			"own":    m.setOwn,
			"fail":   m.fail,
			"tamper": m.tamper,
			"occupy": m.occupy,
			"lose":   func(*rapid.T) { m.kernel.lose(m.Fabric, topology.VXLANDevice4) },
			"resync": func(*rapid.T) { m.Resync("") },
			"wait": func(t *rapid.T) {
				m.run(time.Duration(rapid.IntRange(0, 10_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": m.check,
		})
		m.heal(t)
	})
}

type model struct {
	*world
	synced, placed bool
}

var peers = rapid.IntRange(0, 7)

func (m *model) setNode(t *rapid.T) {
	c := known(peers.Draw(t, "peer"))
	if rapid.Bool().Draw(t, "gone") {
		c = gone(c)
	}
	m.store.Apply(c)
}

func (m *model) setLease(t *rapid.T) {
	i := peers.Draw(t, "peer")
	l := lease(i, rapid.Bool().Draw(t, "v6"))
	switch rapid.SampledFrom([]string{"", "near", "far", "clash", "other", "own"}).Draw(t, "how") {
	case "near":
		l.Addresses[0] = netip.AddrFrom4([4]byte{198, 18, 0, 100 + byte(i)})
	case "far":
		l.Addresses[0] = netip.AddrFrom4([4]byte{198, 19, 7, 100 + byte(i)})
	case "clash":
		l.Subnet = netip.PrefixFrom(l.Subnet.Addr(), l.Subnet.Bits()-1).Masked()
	case "other":
		l.Node = peer((i + 1) % 8)
	case "own":
		l.Node = m.self.Node
	}
	c := holds(l)
	if rapid.Bool().Draw(t, "gone") {
		c = gone(c)
	}
	m.store.Apply(c)
}

func (m *model) setSelf(t *rapid.T) {
	m.self = self()
	m.self.Backend = rapid.SampledFrom([]topology.Backend{topology.Auto, topology.VXLAN, topology.Native}).Draw(t, "backend")
	m.self.MTU = rapid.SampledFrom([]int{0, 1400}).Draw(t, "mtu")
	m.self.Underlay[0].Addr = netip.MustParsePrefix(rapid.SampledFrom([]string{"198.18.0.1/22", "198.19.0.1/22"}).Draw(t, "address"))
	m.SetSelf(m.self)
	m.placed = true
}

func (m *model) setOwn(t *rapid.T) {
	m.node = node(rapid.SampledFrom([]string{"10.42.0.1/32", "10.42.1.1/32"}).Draw(t, "gateway"))
	m.SetNode(m.node)
}

func (m *model) fail(t *rapid.T) {
	mode := mode(rapid.IntRange(0, int(modes)-1).Draw(t, "mode"))
	k := m.kernel
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		k.sysctls.mode = mode
	case 1:
		k.links.mode = mode
	case 2:
		k.addresses.mode = mode
	case 3:
		k.neighbours.mode = mode
	case 4:
		k.fdb.mode = mode
	case 5:
		k.routes.mode = mode
	case 6:
		k.routes.blind = errKernel
	}
}

// tamper does what somebody else may do to our objects.
func (m *model) tamper(t *rapid.T) {
	f := m.Fabric
	if !rapid.Bool().Draw(t, "told") {
		f = New(nil, m.kernel.drivers()) // somebody else is told
	}
	k, pick := m.kernel, rapid.IntRange(0, 100).Draw(t, "object")
	change := rapid.Bool().Draw(t, "change")
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		spoil(&k.routes, pick, func(k topology.RouteKey, v topology.Route, gone bool) { f.Noticed(Routes, k, v, gone) },
			topology.Route{Dev: "eth9"}, change)
	case 1:
		spoil(&k.neighbours, pick, func(k topology.NeighbourKey, v topology.Neighbour, gone bool) { f.Noticed(Neighbours, k, v, gone) },
			topology.Neighbour{}, change)
	case 2:
		spoil(&k.fdb, pick, func(k topology.FDBKey, v topology.FDB, gone bool) { f.Noticed(FDB, k, v, gone) }, topology.FDB{}, change)
	case 3:
		spoil(&k.links, pick, func(k topology.LinkKey, v topology.Link, gone bool) { f.Noticed(Links, k, v, gone) }, topology.Link{}, change)
	case 4:
		spoil(&k.nat, pick, func(k topology.NATKey, v topology.NAT, gone bool) { f.Noticed(NAT, k, v, gone) }, topology.NAT{}, change)
	}
}

func spoil[K delta.Key[K], V comparable](f *fake[K, V], pick int, tell func(K, V, bool), wrong V, change bool) {
	if len(f.have) == 0 {
		return
	}
	k := sorted(f.have)[pick%len(f.have)]
	if change {
		f.have[k] = wrong
	} else {
		delete(f.have, k)
	}
	f.touched(k)
	tell(k, wrong, !change)
}

func (m *model) occupy(t *rapid.T) {
	k := topology.RouteKey{Dst: lease(peers.Draw(t, "peer"), rapid.Bool().Draw(t, "v6")).Subnet}
	if _, ours := m.kernel.routes.have[k]; !ours {
		m.kernel.routes.foreign[k] = true
	}
}

func (m *model) check(t *rapid.T) {
	if use := m.kernel.clusterUse(); use > 0 && (!m.synced || !m.placed) {
		t.Fatalf("%d reads and operations before the cluster is known", use)
	}
	for k := range m.kernel.routes.foreign {
		if _, taken := m.kernel.routes.have[k]; taken {
			t.Fatalf("foreign route %s was taken over", k.Dst)
		}
	}
}

func (m *model) heal(t *rapid.T) {
	m.store.Synced(m.now)
	m.SetSelf(m.self)
	m.SetNode(m.node)
	k := m.kernel
	k.sysctls.mode, k.links.mode, k.addresses.mode, k.neighbours.mode, k.fdb.mode, k.routes.mode = 0, 0, 0, 0, 0, 0
	k.routes.blind = nil
	clear(k.routes.foreign)
	m.run(3 * time.Minute)
	if diff := m.differs(); diff != "" {
		t.Fatalf("the kernel does not hold what is wanted (-want +kernel):\n%s", diff)
	}
	const resyncs = 3 // at most, of each kind in a minute
	if steps := m.run(10 * time.Minute); steps > 7*10*resyncs+1 {
		t.Fatalf("%d steps in ten minutes at rest", steps)
	}
}
