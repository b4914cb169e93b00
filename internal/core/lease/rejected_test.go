// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/cluster"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Whatever becomes of the leases of one pool: what the node decides about
// everything else is the same as if that pool were not there.
func TestRejectedHinderNoOtherPool(t *testing.T) {
	mistaken := netip.MustParsePrefix("10.9.0.0/26")
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		with := in
		with.Leases, with.Rejected = map[string]cluster.Lease{}, map[string]string{}
		for name, l := range in.Leases {
			with.Leases[name] = l
		}
		for name, reason := range in.Rejected {
			with.Rejected[name] = reason
		}
		if rapid.Bool().Draw(t, "the pool is there") {
			with.Pools = append(slices.Clone(in.Pools), cluster.Pool{
				Name: "zz", OnRequest: true, Ranges: []cluster.PoolRange{{CIDR: mistaken, BlockBits: 29}},
			})
			with.Demand = append(slices.Clone(in.Demand), "zz")
		}
		for range rapid.IntRange(0, 6).Draw(t, "mistakes") {
			l := cluster.Lease{Subnet: drawPrefix(t, mistaken, 29, 29, "mistake"), UID: "x", Node: "me", NodeUID: "u1", Pool: "zz", Created: 990}
			with.Leases[l.Name()], with.Rejected[l.Name()] = l, "overlaps something"
		}
		if rapid.Bool().Draw(t, "known") {
			with.Networks = append(slices.Clone(in.Networks), Network{Prefix: mistaken, Dev: "eth7"})
		}
		elsewhere := func(d Decision) (parts [][]cluster.Lease) {
			for _, leases := range [][]cluster.Lease{d.Serve, d.Claim, d.Update, d.Release} {
				parts = append(parts, slices.DeleteFunc(slices.Clone(leases), func(l cluster.Lease) bool { return mistaken.Overlaps(l.Subnet) }))
			}
			return parts
		}
		if diff := cmp.Diff(elsewhere(Decide(in)), elsewhere(Decide(with)), comparePrefixes, compareAddrs, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("decides otherwise:\n%s", diff)
		}
	})
}

// Whatever is claimed is rejected at once, and pods ask all the time, over
// restarts: the node claims a few blocks per rejectedFor and holds no more, and
// it gives all back when the pool is gone.
func TestRejectionDoesNotGoInCircles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cidr := netip.MustParsePrefix("10.9.0.0/24")
		in := Input{
			Name: "me", Node: &cluster.Node{Name: "me"}, IdleAfter: 2 * rejectedFor, Reachable: true, Now: 1 << 50,
			Leases: map[string]cluster.Lease{}, Rejected: map[string]string{}, Demand: []string{"p"},
			Pools: []cluster.Pool{{Name: "p", OnRequest: true, Ranges: []cluster.PoolRange{{CIDR: cidr, BlockBits: 28}}}},
		}
		n, claims, began := 0, 0, in.Now
		pass := func() {
			for range 20 {
				d := Decide(in)
				if len(d.Claim)+len(d.Release)+len(d.Update) == 0 {
					return
				}
				claims += len(d.Claim)
				carryOut(&in, d, &n)
				for _, l := range in.Leases {
					in.Rejected[l.Name()] = "overlaps something"
				}
			}
			t.Fatal("never settles")
		}
		for range rapid.IntRange(1, 40).Draw(t, "passes") {
			in.Now += rapid.Int64Range(0, rejectedFor).Draw(t, "later")
			if rapid.Bool().Draw(t, "restart") {
				in.Started = in.Now
			}
			if pass(); len(in.Leases) > maxRejected {
				t.Fatalf("holds %d rejected leases", len(in.Leases))
			}
		}
		if most := maxRejected * int(1+(in.Now-began)/rejectedFor); claims > most {
			t.Fatalf("%d claims in %d ns, want %d at most", claims, in.Now-began, most)
		}
		in.Pools, in.Demand = nil, nil
		if pass(); len(in.Leases) > 0 {
			t.Fatalf("keeps %d leases of a pool that is gone", len(in.Leases))
		}
	})
}

// A lease of another node around this node's address, which lets no lease of
// this node stand, is named.
func TestLeaseAroundThisNode(t *testing.T) {
	in := Input{
		Name: "me", Node: &cluster.Node{Name: "me"}, IdleAfter: 2 * rejectedFor, Reachable: true, Now: 1 << 50,
		Leases: map[string]cluster.Lease{}, Rejected: map[string]string{}, Addresses: []netip.Addr{netip.MustParseAddr("198.18.0.230")},
		Pools: []cluster.Pool{{Name: "p", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.9.0.0/24"), BlockBits: 28}}}},
	}
	stray := cluster.Lease{Subnet: netip.MustParsePrefix("198.18.0.224/28"), Node: "other"}
	in.Leases[stray.Name()] = stray
	for i := range maxRejected {
		l := cluster.Lease{Subnet: netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/28", 16*i)), Node: "me", Created: in.Now}
		in.Leases[l.Name()] = l
		in.Rejected[l.Name()] = "its node address 198.18.0.230 lies in the subnet of SubnetLease 198-18-0-224-28 of other, which is older"
	}
	d := Decide(in)
	want := "SubnetLease 198-18-0-224-28 of Node other contains this node's address 198.18.0.230: delete it if it is a mistake"
	if len(d.Claim) > 0 || len(d.Waiting) != 1 || !strings.Contains(d.Waiting[0], want) {
		t.Fatalf("decides %+v, want to wait: %s", d, want)
	}
}
