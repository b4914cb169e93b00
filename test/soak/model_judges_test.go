// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"net/netip"
	"testing"

	"weft.dev/weft/internal/core/attach"
)

// A judge that cannot say no is none.
func TestModelJudges(t *testing.T) {
	one, two := attach.Key{Network: "n", ContainerID: "1", Ifname: "eth0"}, attach.Key{Network: "n", ContainerID: "2", Ifname: "eth0"}
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	m := newModel()
	accept := func(k attach.Key, addr netip.Addr, want bool) {
		t.Helper()
		if err := m.attached(k, []netip.Addr{addr}); (err == nil) != want {
			t.Errorf("%s with %s: %v", k, addr, err)
		}
	}
	accept(one, a, true)
	accept(one, a, true)
	accept(one, b, false)
	accept(two, a, false)
	accept(two, b, true)
	m.leaving(one)
	accept(attach.Key{Network: "n", ContainerID: "3", Ifname: "eth0"}, a, true)

	held := map[netip.Addr]attach.Key{a: one, b: two}
	for _, c := range []struct {
		name string
		led  map[netip.Addr]string
		want int
	}{
		{"as it should be", map[netip.Addr]string{a: one.HostIfname(), b: two.HostIfname()}, 0},
		{"a route is missing", map[netip.Addr]string{a: one.HostIfname()}, 1},
		{"a route leads to another pod", map[netip.Addr]string{a: two.HostIfname(), b: two.HostIfname()}, 1},
	} {
		if got := disagreements(held, held, c.led); len(got) != c.want {
			t.Errorf("%s: %v, want %d", c.name, got, c.want)
		}
	}
	if got := disagreements(held, map[netip.Addr]attach.Key{}, nil); len(got) != 0 {
		t.Errorf("attachments that left meanwhile: %v", got)
	}
}
