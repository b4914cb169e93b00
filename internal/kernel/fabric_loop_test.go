// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/kernel/nstest"
)

// Errors of ICMP and ICMPv6 that a packet without a pod may bring.
const (
	unreachable4, exceeded4 = 3, 11 // RFC 792
	unreachable6, exceeded6 = 1, 3  // RFC 4443
)

// complaint sends one packet and returns the type of the ICMP error that comes
// back for it.
func complaint(t *testing.T, from *nstest.NS, dst netip.Addr) int {
	t.Helper()
	network, echo, original := "ip4:icmp", byte(8), 8+16 // the destination in the packet that the error quotes
	if dst.Is6() {
		network, echo, original = "ip6:ipv6-icmp", 128, 8+24
	}
	var conn net.PacketConn
	from.Do(func() {
		c, err := net.ListenPacket(network, "")
		if err != nil {
			t.Fatal(err)
		}
		conn = c
	})
	defer conn.Close()
	request := []byte{echo, 0, 0, 0, 'w', 'e', 0, 1}
	sum := checksum(request) // the kernel does it for ICMPv6
	request[2], request[3] = byte(sum>>8), byte(sum)
	if _, err := conn.WriteTo(request, &net.IPAddr{IP: dst.AsSlice()}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			t.Fatalf("nothing comes back for a packet to %s: %v", dst, err)
		}
		size := dst.BitLen() / 8
		isError := dst.Is4() && (buf[0] == unreachable4 || buf[0] == exceeded4) || dst.Is6() && (buf[0] == unreachable6 || buf[0] == exceeded6)
		if quoted, ok := netip.AddrFromSlice(buf[original : original+size]); ok && isError && n >= original+size && quoted == dst {
			return int(buf[0])
		}
	}
}

// countArrivals makes a node count the packets to an address that come in.
func (m member) countArrivals(dst netip.Addr) (count func() int) {
	m.Helper()
	nstest.Need(m, "nftables")
	family := "ip"
	if dst.Is6() {
		family = "ip6"
	}
	table := family + " arrivals"
	m.ip("nft", fmt.Sprintf("add table %[1]s; add chain %[1]s in { type filter hook prerouting priority -300; }; add rule %[1]s in %[2]s daddr %[3]s counter",
		table, family, dst))
	return func() int {
		m.Helper()
		_, rest, _ := strings.Cut(m.ip("nft", "list table "+table), "counter packets ")
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			m.Fatal(err)
		}
		return n
	}
}

// A packet to an address that the first node's block has, the second node
// leases, and no pod has, comes back at once. Without the route of last resort it
// would cross between the nodes until its hop limit ends: the test shows that,
// too, or it would prove nothing.
func TestAddressOfNoPodDoesNotLoop(t *testing.T) {
	for name, overlay := range map[string]bool{"native": false, "vxlan": true} {
		for _, with := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, last resort %v", name, with), func(t *testing.T) {
				nodes := segment(t)
				for i, n := range nodes {
					if overlay {
						n.overlay(nodes[1-i], false, true)
					} else {
						n.native(nodes[1-i], false)
					}
				}
				for _, a := range []string{"10.42.1.9", "fd00:42:1::9"} {
					dst := netip.MustParseAddr(a)
					nodes[0].leadTo(nodes[1], dst, overlay)
					want := map[bool]int{true: exceeded4, false: exceeded6}[dst.Is4()]
					if with {
						apply(t, nodes[1].h.FabricRoutes(), delta.Add, lastResort(a), topology.Route{})
						want = map[bool]int{true: unreachable4, false: unreachable6}[dst.Is4()]
					}
					arrivals := nodes[1].countArrivals(dst)
					if got := complaint(t, nodes[0].pod.NS, dst); got != want {
						t.Errorf("%s: an ICMP error of type %d, want %d", a, got, want)
					}
					if n := arrivals(); with && n != 1 || !with && n < 10 {
						t.Errorf("%s: the packet came to the second node %d times", a, n)
					}
				}
			})
		}
	}
}

// leadTo makes the route to a lease of one address.
func (m member) leadTo(peer member, dst netip.Addr, overlay bool) {
	m.Helper()
	key := topology.RouteKey{Dst: netip.PrefixFrom(dst, dst.BitLen())}
	route := topology.Route{Gateway: peer.underlay(dst.Is6()), Dev: "uplink"}
	if overlay {
		route = topology.Route{Gateway: dst, Dev: topology.VXLANDevice4}
		apply(m, m.h.FabricNeighbours(), delta.Add, topology.NeighbourKey{Dev: route.Dev, Addr: dst}, topology.Neighbour{MAC: peer.mac()})
	}
	apply(m, m.h.FabricRoutes(), delta.Add, key, route)
}
