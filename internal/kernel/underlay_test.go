// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/topology"
)

// underlays writes what was found the way ip would.
func underlays(list []topology.Underlay) string {
	var s []string
	for _, u := range list {
		s = append(s, fmt.Sprintf("%s %s %d", u.Addr, u.Dev, u.MTU))
	}
	return strings.Join(s, ", ")
}

func TestUnderlay(t *testing.T) {
	type step = []string // commands of ip
	uplink := step{
		"link add u0 type veth peer name x0", "link set u0 up mtu 1400", "addr add 198.18.1.11/24 dev u0",
		"-6 addr add 2001:db8:1::11/64 dev u0 nodad",
	}
	both := append(append(step(nil), uplink...), "route add default via 198.18.1.1 dev u0", "-6 route add default via 2001:db8:1::1 dev u0")
	second := step{"link add u1 type veth peer name x1", "link set u1 up", "addr add 198.18.2.11/24 dev u1"}
	for _, c := range []struct {
		name   string
		steps  []step
		wanted string
		want   string // "" where an error must hold all words of fails
		fails  string
	}{
		{"both families", []step{both}, "", "198.18.1.11/24 u0 1400, 2001:db8:1::11/64 u0 1400", ""},
		{"of the default route", []step{both, second}, "", "198.18.1.11/24 u0 1400, 2001:db8:1::11/64 u0 1400", ""},
		{"without a default route", []step{uplink}, "", "198.18.1.11/24 u0 1400, 2001:db8:1::11/64 u0 1400", ""},
		{"one family ambiguous", []step{uplink, second}, "", "2001:db8:1::11/64 u0 1400", ""},
		{"ambiguous", []step{uplink, second, {"-6 addr del 2001:db8:1::11/64 dev u0"}}, "", "",
			"IPv4: no default route, several interfaces 198.18.1.11/24 dev u0, 198.18.2.11/24 dev u1 configure"},
		{"an engine's bridge on an IPv6 node", []step{{
			"link add u0 type veth peer name x0", "link set u0 up", "-6 addr add 2001:db8:1::11/64 dev u0 nodad",
			"-6 route add default via 2001:db8:1::1 dev u0", "link add docker0 type veth peer name y0", "link set docker0 up",
			"addr add 172.17.0.1/16 dev docker0",
		}}, "", "2001:db8:1::11/64 u0 1500", ""},
		{"a family by the other's interface", []step{uplink, second, {"-6 route add default via 2001:db8:1::1 dev u0"}}, "",
			"198.18.1.11/24 u0 1400, 2001:db8:1::11/64 u0 1400", ""},
		{"down", []step{uplink, {"link set u0 down"}}, "", "", "no default route, no interface that is up"},
		{"nothing at all", nil, "", "", "IPv4 IPv6 no default route"},
		{"an address that comes and goes", []step{both, {
			"addr add 198.18.1.5/32 dev u0",                // a floating one
			"addr add 198.18.1.4/24 dev u0",                // secondary
			"-6 addr add 2001:db8:1::1:1/128 dev u0 nodad", // not where the kernel sends from, with few neighbours
			"-6 addr add 2001:db8:1::2/64 dev u0 nodad preferred_lft 0",
		}}, "", "198.18.1.11/24 u0 1400, 2001:db8:1::11/64 u0 1400", ""},
		{"the kernel's own choice", []step{both, {
			"addr add 198.18.0.1/16 dev u0", "route replace default via 198.18.1.1 dev u0 src 198.18.0.1",
		}}, "", "198.18.0.1/16 u0 1400, 2001:db8:1::11/64 u0 1400", ""},
		{"wanted", []step{both, second}, "198.18.2.11", "198.18.2.11/24 u1 1500", ""},
		{"wanted, IPv6 first", []step{both, second}, "2001:db8:1::11 198.18.2.11 198.18.1.11",
			"198.18.2.11/24 u1 1500, 2001:db8:1::11/64 u0 1400", ""},
		{"wanted on loopback", []step{both, {"addr add 203.0.113.5/32 dev lo"}}, "203.0.113.5", "203.0.113.5/32 lo 1400", ""},
		{"wanted and missing", []step{both}, "198.18.9.9", "", "198.18.9.9 there are 198.18.1.11/24 dev u0"},
		{"wanted and down", []step{both, {"link set u0 down"}}, "198.18.1.11", "", "198.18.1.11 u0 down"},
		{"wanted, but ours", []step{both, {
			"link add weft-vxlan type vxlan id 7 dstport 8472", "addr add 10.42.3.1/32 dev weft-vxlan", "link set weft-vxlan up",
		}}, "10.42.3.1", "", "no interface 10.42.3.1"},
		{"ours beside", []step{uplink, {
			"link add weft-vxlan type vxlan id 7 dstport 8472", "addr add 10.42.3.1/32 dev weft-vxlan", "link set weft-vxlan up",
		}}, "", "198.18.1.11/24 u0 1400, 2001:db8:1::11/64 u0 1400", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.ip("addr", "flush", "dev", "lo", "scope", "global")
			for _, s := range c.steps {
				for _, command := range s {
					w.ip(strings.Fields(command)...)
				}
			}
			var wanted []netip.Addr
			for _, s := range strings.Fields(c.wanted) {
				wanted = append(wanted, netip.MustParseAddr(s))
			}
			found, err := w.h.Underlay(wanted, nil)
			if c.fails == "" {
				if got := underlays(found); err != nil || got != c.want {
					t.Errorf("found %q, error %v, want %q", got, err, c.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("found %q, want an error", underlays(found))
			}
			for _, word := range strings.Fields(c.fails) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error lacks %q: %v", word, err)
				}
			}
		})
	}
}

// An uplink that flaps, or a default route that is withdrawn, does not move the
// node to another interface; that its address is gone does.
func TestUnderlayStaysWhereItIs(t *testing.T) {
	w := newWorld(t)
	ip := func(commands ...string) {
		t.Helper()
		for _, c := range commands {
			w.ip(strings.Fields(c)...)
		}
	}
	ip("addr flush dev lo scope global",
		"link add u0 type veth peer name x0", "link set u0 up", "link set x0 up",
		"addr add 198.18.1.11/24 dev u0", "-6 addr add 2001:db8:1::11/64 dev u0 nodad",
		"route add default via 198.18.1.1 dev u0", "-6 route add default via 2001:db8:1::1 dev u0")
	var had []topology.Underlay
	is := func(when, want string) {
		t.Helper()
		found, err := w.h.Underlay(nil, had)
		if got := underlays(found); err != nil || got != want {
			t.Errorf("%s: found %q, error %v, want %q", when, got, err, want)
		}
		had = found
	}
	const home, away = "198.18.1.11/24 u0 1500, 2001:db8:1::11/64 u0 1500", "172.17.0.1/16 d0 1500, 2001:db8:17::1/64 d0 1500"
	is("at first", home)
	ip("link add d0 type veth peer name y0", "link set d0 up", "link set y0 up",
		"addr add 172.17.0.1/16 dev d0", "-6 addr add 2001:db8:17::1/64 dev d0 nodad")
	ip("route del default", "-6 route del default")
	is("without a default route", home)
	ip("route add default via 172.17.0.2 dev d0")
	is("with another default route", home)
	ip("link set u0 down")
	is("with the uplink down", home)
	ip("link set u0 up", "-6 addr replace 2001:db8:1::11/64 dev u0 nodad", "link set u0 mtu 1400")
	is("with another MTU", strings.ReplaceAll(home, "1500", "1400"))
	ip("addr del 198.18.1.11/24 dev u0", "-6 addr del 2001:db8:1::11/64 dev u0")
	is("with the addresses gone", away)

	// What a node's lease says, after a restart, is an address without a device.
	had = []topology.Underlay{{Addr: netip.MustParsePrefix("198.18.1.11/32")}}
	is("with an address that is gone for good", away)
	ip("addr add 198.18.1.11/24 dev u0")
	had = []topology.Underlay{{Addr: netip.MustParsePrefix("198.18.1.11/32")}}
	is("with an address that is there", "198.18.1.11/24 u0 1400, 2001:db8:17::1/64 d0 1500")
}
