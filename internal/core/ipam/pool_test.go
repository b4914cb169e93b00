// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func subnetRange(subnet string) Range { return rng(subnet, "", "", "", "") }

func mustPool(t testing.TB, sets ...Set) Pool {
	t.Helper()
	p, err := NewPool(sets)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewPool(t *testing.T) {
	lower := rng("10.1.0.0/24", "", "10.1.0.99", "", "")
	upper := rng("10.1.0.0/24", "10.1.0.100", "", "", "")
	sets := []Set{{upper, subnetRange("10.2.0.0/24"), lower}, {subnetRange("fd00::/64")}}
	p := mustPool(t, sets...)
	if got, want := p.Subnets(), prefixes("10.1.0.0/24 10.2.0.0/24 fd00::/64"); !reflect.DeepEqual(got, want) {
		t.Errorf("subnets %v, want %v", got, want)
	}
	if p.Sets[0][0].Gateway != addr("10.1.0.1") || p.Sets[1][0].First != addr("fd00::1") {
		t.Errorf("ranges are not canonical: %+v", p)
	}
	if sets[0][0].Gateway.IsValid() {
		t.Error("the argument was changed")
	}
	if got, want := p.Sets[0].Size(), uint64(254-99+254-1+99-1); got != want {
		t.Errorf("size %d, want %d", got, want)
	}
	for s, want := range map[string]int{"10.1.0.2": 0, "10.2.0.9": 0, "fd00::9": 1, "10.1.0.1": -1, "10.3.0.1": -1} {
		set, r, ok := p.Find(addr(s))
		if ok != (want >= 0) || (ok && (set != want || !r.Contains(addr(s)))) {
			t.Errorf("Find(%s) = %d, %s, %v", s, set, r, ok)
		}
	}
	// The gateway of one range is not kept from another: host-local's rule.
	if got := p.String(); got != "10.1.0.0/24 (10.1.0.100-10.1.0.254), 10.2.0.0/24 (10.2.0.1-10.2.0.254), "+
		"10.1.0.0/24 (10.1.0.1-10.1.0.99), fd00::/64 (fd00::1-fd00::ffff:ffff:ffff:ffff)" {
		t.Errorf("String() = %s", got)
	}
}

func TestNewPoolRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		sets []Set
		want []string
	}{
		{"empty", nil, []string{"without ranges"}},
		{"empty set", []Set{{subnetRange("10.1.0.0/24")}, {}}, []string{"ranges[1] is empty"}},
		{"bad range", []Set{{subnetRange("10.1.0.0/24"), subnetRange("10.2.0.1/24")}}, []string{"ranges[0][1]", "should be 10.2.0.0/24"}},
		{"two families", []Set{{subnetRange("10.1.0.0/24"), subnetRange("fd00::/64")}}, []string{"ranges[0][1]", "is IPv6", "ranges[0][0]", "is IPv4"}},
		{"overlap in a set", []Set{{subnetRange("10.1.0.0/24"), subnetRange("10.0.0.0/8")}}, []string{"ranges[0][1]", "10.0.0.0/8", "overlaps", "ranges[0][0]", "10.1.0.0/24"}},
		{"overlap across sets", []Set{{subnetRange("fd00::/64")}, {subnetRange("10.1.0.0/24")}, {rng("10.1.0.0/24", "10.1.0.254", "10.1.0.254", "", "")}},
			[]string{"ranges[1][0]", "overlaps", "ranges[2][0]"}},
		{"overlap hidden by one in between", []Set{{subnetRange("10.0.0.0/8"), subnetRange("10.1.0.0/24"), subnetRange("10.2.0.0/24")}}, []string{"overlaps"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewPool(tt.sets)
			wantMessage(t, err, tt.want...)
		})
	}
}

// NewPool accepts two ranges exactly if no address is in both.
func TestOverlapAgreesWithWalking(t *testing.T) {
	subnets := []string{"10.1.0.0/28", "10.1.0.8/29", "10.1.0.16/28", "10.1.0.4/30"}
	rapid.Check(t, func(t *rapid.T) {
		var sets []Set
		seen, overlap := map[string]bool{}, false
		for range rapid.IntRange(1, 3).Draw(t, "sets") {
			var set Set
			for range rapid.IntRange(1, 2).Draw(t, "ranges") {
				r := drawRange(t, subnets)
				for _, a := range walk(r.First, r.Last) {
					overlap = overlap || seen[a.String()]
				}
				for _, a := range walk(r.First, r.Last) {
					seen[a.String()] = true
				}
				set = append(set, r)
			}
			sets = append(sets, set)
		}
		if _, err := NewPool(sets); (err != nil) != overlap {
			t.Fatalf("overlap %v, error %v", overlap, err)
		}
	})
}

func TestSetStringCountsTheRest(t *testing.T) {
	p := mustPool(t, Set{subnetRange("10.1.0.0/32"), subnetRange("10.1.0.1/32"), subnetRange("10.1.0.2/32"),
		subnetRange("10.1.0.3/32"), subnetRange("10.1.0.4/32"), subnetRange("10.1.0.5/32")})
	want := "10.1.0.0/32 (10.1.0.0-10.1.0.0), 10.1.0.1/32 (10.1.0.1-10.1.0.1), 10.1.0.2/32 (10.1.0.2-10.1.0.2), 10.1.0.3/32 (10.1.0.3-10.1.0.3) and 2 more"
	if got := p.Sets[0].String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
