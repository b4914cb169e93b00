// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"net/netip"
	"strconv"
	"testing"

	"weft.dev/weft/internal/core/cluster"
)

// world10000 has 10,000 leases, in a pool that is nearly full or nearly empty.
func world10000(bits int) Input {
	r := cluster.PoolRange{CIDR: netip.MustParsePrefix("fd00::/40"), BlockBits: bits}
	in := Input{
		Name: "me", Node: &cluster.Node{Name: "me"}, Reachable: true, Leases: map[string]cluster.Lease{},
		Pools: []cluster.Pool{{Name: "default", Ranges: []cluster.PoolRange{r}}},
	}
	g := newGrid(r)
	stride := g.blocks() / 10_000
	for i := range uint64(10_000) {
		l := cluster.Lease{Subnet: g.block(i * stride), Node: "node" + strconv.Itoa(int(i))}
		in.Leases[l.Name()] = l
	}
	return in
}

func BenchmarkDecide(b *testing.B) {
	full, empty, held := world10000(54), world10000(64), world10000(64)
	for i := range uint64(6_384) { // of 16,384 blocks
		l := cluster.Lease{Subnet: newGrid(full.Pools[0].Ranges[0]).block(10_000 + i), Node: "rest"}
		full.Leases[l.Name()] = l
	}
	mine := cluster.Lease{Subnet: netip.MustParsePrefix("fd00:0:12:3456::/64"), Node: "me", Pool: "default"}
	held.Leases[mine.Name()] = mine
	for _, c := range []struct {
		name          string
		in            Input
		claims, waits int
	}{{"full", full, 0, 1}, {"empty", empty, 1, 0}, {"nothing", held, 0, 0}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if d := Decide(c.in); len(d.Claim) != c.claims || len(d.Waiting) != c.waits {
					b.Fatalf("%+v", d)
				}
			}
		})
	}
}
