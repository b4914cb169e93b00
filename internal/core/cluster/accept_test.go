// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func pool(name string, created int64, cidrs ...string) Pool {
	p := Pool{Name: name, Created: created}
	for _, c := range cidrs {
		cidr := netip.MustParsePrefix(c)
		p.Ranges = append(p.Ranges, PoolRange{CIDR: cidr, BlockBits: cidr.Bits()})
	}
	return p
}

var none = slices.Values([]Lease(nil))

// A pool that nodes have leases of is not displaced by one that came later, be
// it older or lesser by name, as a hand-written manifest without a time is.
func TestPoolInUseStays(t *testing.T) {
	pool := func(name, cidr string) Pool {
		return Pool{Name: name, Ranges: []PoolRange{{CIDR: netip.MustParsePrefix(cidr), BlockBits: 26}}}
	}
	pools := []Pool{pool("canary", "10.42.255.0/24"), pool("default", "10.42.0.0/16")}
	leases := slices.Values([]Lease{{Subnet: netip.MustParsePrefix("10.42.3.0/26"), Pool: "default"}})
	accepted, rejected := AcceptPools(pools, leases)
	if len(accepted) != 1 || accepted[0].Name != "default" || len(rejected) != 1 ||
		rejected[0] != (Rejection{"IPPool canary", "10.42.255.0/24 overlaps 10.42.0.0/16 of IPPool default, which is in use; give it another range"}) {
		t.Errorf("accepted %v, rejected %v", accepted, rejected)
	}
	if accepted, _ = AcceptPools(pools, none); len(accepted) != 1 || accepted[0].Name != "canary" {
		t.Errorf("without a lease: accepted %v", accepted)
	}
}

func TestAcceptPools(t *testing.T) {
	cases := map[string]struct {
		pools    []Pool
		accepted string
		rejected []Rejection
	}{
		"none": {nil, "", nil},
		"apart": {
			[]Pool{pool("b", 1, "10.1.0.0/16"), pool("a", 2, "10.2.0.0/16", "fd00::/48")}, "a b", nil,
		},
		"the older one stays, whatever its name": {
			[]Pool{pool("a", 2, "10.0.0.0/16"), pool("b", 1, "10.0.0.0/8")}, "b",
			[]Rejection{{"IPPool a", "10.0.0.0/16 overlaps 10.0.0.0/8 of IPPool b, which is older; give it another range"}},
		},
		"of the same age the first by name": {
			[]Pool{pool("b", 1, "10.0.0.0/16"), pool("a", 1, "10.0.0.0/16")}, "a",
			[]Rejection{{"IPPool b", "10.0.0.0/16 overlaps 10.0.0.0/16 of IPPool a, which is the first by name; give it another range"}},
		},
		"one family is enough to clash": {
			[]Pool{pool("a", 1, "10.1.0.0/16", "fd00::/48"), pool("b", 2, "10.2.0.0/16", "fd00:0:0:1::/64")}, "a",
			[]Rejection{{"IPPool b", "fd00:0:0:1::/64 overlaps fd00::/48 of IPPool a, which is older; give it another range"}},
		},
		"what is rejected takes no place": {
			[]Pool{pool("a", 1, "10.0.0.0/24"), pool("b", 2, "10.0.0.0/16"), pool("c", 3, "10.0.1.0/24")}, "a c",
			[]Rejection{{"IPPool b", "10.0.0.0/16 overlaps 10.0.0.0/24 of IPPool a, which is older; give it another range"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			accepted, rejected := AcceptPools(c.pools, none)
			if got := strings.Join(names(accepted), " "); got != c.accepted {
				t.Errorf("accepted %q, want %q", got, c.accepted)
			}
			if !reflect.DeepEqual(rejected, c.rejected) {
				t.Errorf("rejected %v, want %v", rejected, c.rejected)
			}
		})
	}
}

func names(pools []Pool) []string {
	var list []string
	for _, p := range pools {
		list = append(list, p.Name)
	}
	return list
}

// Every node must come to the same judgement, in whatever order it learned of
// the pools; what is accepted is disjoint, and what is rejected would not be.
func TestAcceptPoolsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pools []Pool
		for i := range rapid.IntRange(0, 8).Draw(t, "pools") {
			bits := rapid.IntRange(8, 12).Draw(t, "bits")
			cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 15).Draw(t, "octet") << 4)}), bits).Masked()
			pools = append(pools, pool(fmt.Sprint("p", i), rapid.Int64Range(0, 3).Draw(t, "created"), cidr.String()))
		}
		before := slices.Clone(pools)
		accepted, rejected := AcceptPools(pools, none)
		if !reflect.DeepEqual(pools, before) {
			t.Error("the input was changed")
		}
		if len(accepted)+len(rejected) != len(pools) || !slices.IsSorted(names(accepted)) {
			t.Errorf("of %d pools: accepted %v, rejected %v", len(pools), names(accepted), rejected)
		}
		for _, p := range pools {
			others := slices.DeleteFunc(slices.Clone(accepted), func(q Pool) bool { return q.Name == p.Name })
			is := len(others) < len(accepted)
			if clash := overlapOf(p, others, nil) != ""; clash == is {
				t.Errorf("%s: accepted %t, overlaps an accepted pool %t", p.Name, is, clash)
			}
		}
		shuffled := rapid.Permutation(pools).Draw(t, "shuffled")
		again, rejectedAgain := AcceptPools(shuffled, none)
		if !reflect.DeepEqual(names(again), names(accepted)) || !reflect.DeepEqual(rejectedAgain, rejected) {
			t.Errorf("in another order: accepted %v, %v, rejected %v, %v", names(accepted), names(again), rejected, rejectedAgain)
		}
	})
}
