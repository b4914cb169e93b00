// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"net/netip"
	"testing"
	"time"

	"weft.dev/weft/internal/core/topology"
)

const many = 5000 // dual-stack nodes: 10,000 leases

// crowd is a world in which all of them are reached by VXLAN.
func crowd(b *testing.B) *world {
	w := running(b, many)
	w.self.Backend = topology.VXLAN
	w.SetSelf(w.self)
	w.Step(w.now)
	w.same(b)
	return w
}

// One lease changes, and one route follows.
func BenchmarkOneLease(b *testing.B) {
	w := crowd(b)
	l := lease(3, false)
	addresses := [][]netip.Addr{
		{netip.MustParseAddr("198.18.3.254")}, {netip.MustParseAddr("198.18.3.253")},
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Addresses = addresses[i%2]
		w.store.Apply(holds(l))
		w.Step(w.now)
	}
}

// Everything is read and nothing is to be done. The fake drivers' share, the
// copying of their maps, is reported too.
func BenchmarkResync(b *testing.B) {
	w := crowd(b)
	objects := 0
	for _, s := range w.Status() {
		objects += s.Desired
	}
	var took time.Duration
	for b.Loop() {
		w.Resync("")
		w.Step(w.now)
		for _, s := range w.Status() {
			took += s.ResyncTook
		}
	}
	b.ReportMetric(float64(objects), "objects")
	b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "driver-ms/op")
}

// From nothing to everything, without the kernel.
func BenchmarkCold(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld()
		for i := range many {
			w.store.Apply(join(i)...)
		}
		w.store.Synced(w.now)
		w.self.Backend = topology.VXLAN
		w.SetSelf(w.self)
		w.SetNode(w.node)
		b.StartTimer()
		w.Step(w.now)
	}
}

// The echo of an operation of our own.
func BenchmarkEcho(b *testing.B) {
	w := crowd(b)
	var key, value any
	for _, o := range w.Objects(Routes)[:1] {
		key, value = o.Key, o.Value
	}
	if _, ok := key.(topology.RouteKey); !ok {
		b.Fatalf("key %v", key)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Noticed(Routes, key, value, false)
	}
}
