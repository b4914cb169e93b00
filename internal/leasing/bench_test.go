// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"net/netip"
	"strconv"
	"testing"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// A pass in which nothing changed, and one in which another node's lease did,
// in a cluster of 10,000 leases.
func BenchmarkStep(b *testing.B) {
	pool := cluster.Pool{Name: "default", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.0.0.0/8"), BlockBits: 24}}}
	w := newWorld(pool)
	var last cluster.Lease
	for i := range 10_000 {
		last = cluster.Lease{Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), Node: "node" + strconv.Itoa(i)}
		w.registry.Put(leaseKey(last.Subnet), last)
	}
	n := w.add("a")
	n.keeper.Step(b.Context(), epoch)
	n.feed.Deliver(n.feed.Pending())
	n.keeper.Step(b.Context(), epoch)
	if len(n.ipam.served()) != 1 || len(n.keeper.Status().Waiting) > 0 {
		b.Fatalf("%+v", n.keeper.Status())
	}
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			n.keeper.Step(b.Context(), epoch)
		}
	})
	b.Run("peer", func(b *testing.B) {
		change := registry.Change{Key: leaseKey(last.Subnet), Object: last}
		for b.Loop() {
			n.store.Apply(change)
			n.keeper.Step(b.Context(), epoch)
		}
	})
}
