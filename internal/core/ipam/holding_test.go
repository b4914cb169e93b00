// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestHoldingsMatchMap: addresses that differ in their family alone, or in one
// bit, are neighbours in 16 bytes.
func TestHoldingsMatchMap(t *testing.T) {
	pool := []netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::10.0.0.1"), netip.MustParseAddr("fd00::10.0.0.1"),
		netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::"), netip.MustParseAddr("255.255.255.255"),
	}
	for i := range 20 {
		pool = append(pool, netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00::%x", i)))
	}
	rapid.Check(t, func(t *rapid.T) {
		var h holdings
		want := map[netip.Addr]string{}
		addr := rapid.SampledFrom(pool)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				a, owner := addr.Draw(t, "addr"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "owner")
				if holder := h.take(a, owner); holder != want[a] {
					t.Fatalf("%s was held by %q, want %q", a, holder, want[a])
				}
				if want[a] == "" {
					want[a] = owner
				}
			},
			"remove": func(t *rapid.T) {
				a := addr.Draw(t, "addr")
				h.remove(a)
				delete(want, a)
			},
			"": func(t *rapid.T) {
				for _, a := range pool {
					if owner := h.owner(a); owner != want[a] {
						t.Fatalf("%s is held by %q, want %q", a, owner, want[a])
					}
				}
				if got := maps.Collect(h.all); !maps.Equal(got, want) || h.len() != len(want) {
					t.Fatalf("%d: %v, want %v", h.len(), got, want)
				}
			},
		})
	})
}

// TestHoldingsKnowPlainAddressesOnly: other spellings share the 16 bytes of an
// address that may be held.
func TestHoldingsKnowPlainAddressesOnly(t *testing.T) {
	var h holdings
	h.take(netip.MustParseAddr("10.0.0.1"), "x")
	h.take(netip.MustParseAddr("fe80::1"), "x")
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("fe80::1%eth0")} {
		if owner := h.owner(a); owner != "" {
			t.Errorf("%s is held by %s", a, owner)
		}
	}
}
