// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/kernel"
)

// tampering changes one thing of an attachment behind our back.
type tampering struct {
	name string
	pod  func(l netlink.Link) error // with the pod end
	host func(l netlink.Link) error // with the host end
	opts kernel.CompareOptions
	want []string // beginnings of the differences, all of them
}

var dualTampering = []tampering{
	{name: "pod link down", pod: netlink.LinkSetDown, want: []string{
		// An interface that goes down loses its routes, and its IPv6 addresses.
		"state of link eth0", "address fd00:42:3::7/128", "address fe80::",
		"neighbour 169.254.1.1", "neighbour fd00:42::1", "route 0.0.0.0/0", "route ::/0"}},
	{name: "host link down", host: netlink.LinkSetDown, want: []string{
		"state of link weft", "route 10.42.3.7/32", "route fd00:42:3::7/128",
		"neighbour fd00:42:3::7"}},
	{name: "pod link renamed", pod: func(l netlink.Link) error { return netlink.LinkSetName(l, "eth1") },
		want: []string{"link eth0 in the sandbox"}},
	{name: "link deleted", host: netlink.LinkDel, want: []string{"link weft", "link eth0 in the sandbox"}},
	{name: "alias changed", host: func(l netlink.Link) error { return netlink.LinkSetAlias(l, "weft x y") },
		want: []string{"alias of link weft"}},
	{name: "doomed", host: func(l netlink.Link) error { return netlink.LinkSetGroup(l, kernel.DoomedGroup) },
		want: []string{"group of link weft"}},
	{name: "address deleted", pod: func(l netlink.Link) error { return netlink.AddrDel(l, parseAddr("10.42.3.7/32")) },
		// The last IPv4 address takes the routes and neighbours of its family along.
		want: []string{"address 10.42.3.7/32", "neighbour 169.254.1.1", "route 0.0.0.0/0"}},
	{name: "ipv6 address deleted", pod: func(l netlink.Link) error { return netlink.AddrDel(l, parseAddr("fd00:42:3::7/128")) },
		want: []string{"address fd00:42:3::7/128"}},
	{name: "default route deleted", pod: func(l netlink.Link) error { return netlink.RouteDel(podRoute(l, "0.0.0.0/0", 0)) },
		want: []string{"route 0.0.0.0/0 via 169.254.1.1"}},
	{name: "ipv6 default route deleted", pod: func(l netlink.Link) error { return netlink.RouteDel(podRoute(l, "::/0", 0)) },
		want: []string{"route ::/0 via fd00:42::1"}},
	{name: "route has another mtu", pod: func(l netlink.Link) error {
		return netlink.RouteReplace(podRoute(l, "0.0.0.0/0", 1200))
	}, want: []string{"route 0.0.0.0/0"}},
	{name: "ipv6 route has another mtu", pod: func(l netlink.Link) error {
		return netlink.RouteReplace(podRoute(l, "::/0", 1300))
	}, want: []string{"route ::/0"}},
	{name: "gateway's neighbour deleted", pod: func(l netlink.Link) error { return netlink.NeighDel(neighbour(l, "169.254.1.1", "")) },
		want: []string{"neighbour 169.254.1.1"}},
	{name: "gateway's neighbour changed", pod: func(l netlink.Link) error {
		return netlink.NeighSet(neighbour(l, "fd00:42::1", "02:00:00:00:00:99"))
	}, want: []string{"neighbour fd00:42::1"}},
	{name: "host route deleted", host: func(l netlink.Link) error {
		return netlink.RouteDel(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: cidr("10.42.3.7/32"), Scope: netlink.SCOPE_LINK})
	}, want: []string{"route 10.42.3.7/32"}},
	{name: "ipv6 host route deleted", host: func(l netlink.Link) error {
		return netlink.RouteDel(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: cidr("fd00:42:3::7/128")})
	}, want: []string{"route fd00:42:3::7/128"}},
	{name: "host neighbour wrong", host: func(l netlink.Link) error {
		return netlink.NeighSet(neighbour(l, "10.42.3.7", "02:00:00:00:00:97"))
	}, want: []string{"neighbour 10.42.3.7"}},
	{name: "host neighbour gone, to be learned again", host: func(l netlink.Link) error {
		return netlink.NeighDel(neighbour(l, "10.42.3.7", ""))
	}},
	{name: "host neighbour not permanent, IPv6", host: func(l netlink.Link) error {
		n := neighbour(l, "fd00:42:3::7", attach.Key{Network: "mynet", ContainerID: "c1", Ifname: "eth0"}.MAC().String())
		n.State = netlink.NUD_STALE
		return netlink.NeighSet(n)
	}, want: []string{"neighbour fd00:42:3::7"}},
	{name: "pod mac changed", pod: setMAC, opts: kernel.CompareOptions{MAC: true}, want: []string{
		"mac of link eth0", "neighbour 169.254.1.1", "neighbour fd00:42::1"}}, // the kernel forgets all neighbours
	{name: "pod mac changed, tolerated", pod: setMAC},
	{name: "host mac changed", host: setMAC, opts: kernel.CompareOptions{MAC: true}, want: []string{
		"mac of link weft", "neighbour fd00:42:3::7"}},
	{name: "mtu changed", pod: setMTU, opts: kernel.CompareOptions{MTU: true}, want: []string{"mtu of link eth0"}},
	{name: "mtu changed, tolerated", pod: setMTU},
	{name: "host mtu changed", host: setMTU, opts: kernel.CompareOptions{MTU: true}, want: []string{"mtu of link weft"}},
	{name: "extra objects, tolerated", pod: func(l netlink.Link) error {
		if err := netlink.AddrAdd(l, parseAddr("192.0.2.7/24")); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: cidr("10.200.0.0/16"), Scope: netlink.SCOPE_LINK})
	}},
	{name: "nothing", opts: kernel.CompareOptions{MAC: true, MTU: true}},
}

func setMAC(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, mac("02:00:00:00:00:98")) }
func setMTU(l netlink.Link) error { return netlink.LinkSetMTU(l, 1400) }

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

func cidr(s string) *net.IPNet {
	p := netip.MustParsePrefix(s)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func parseAddr(s string) *netlink.Addr { return &netlink.Addr{IPNet: cidr(s)} }

func podRoute(l netlink.Link, dst string, mtu int) *netlink.Route {
	gw := gatewayFor(netip.MustParsePrefix(dst).Addr())
	return &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: cidr(dst), Gw: gw.AsSlice(), Flags: int(netlink.FLAG_ONLINK), MTU: mtu,
	}
}

func neighbour(l netlink.Link, addr, hw string) *netlink.Neigh {
	n := &netlink.Neigh{LinkIndex: l.Attrs().Index, IP: net.ParseIP(addr), State: netlink.NUD_PERMANENT}
	if hw != "" {
		n.HardwareAddr = mac(hw)
	}
	return n
}

func TestCompareFindsEachTamperingAndNothingElse(t *testing.T) {
	for _, c := range dualTampering {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := w.attached("10.42.3.7", "fd00:42:3::7")
			tamper := func(name string, change func(netlink.Link) error) func() {
				return func() {
					l, err := netlink.LinkByName(name)
					if err == nil && change != nil {
						err = change(l)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			p.Do(tamper("eth0", c.pod))
			w.host.Do(tamper(p.plan.HostIfname, c.host))
			diffs, err := w.h.Compare(p.ns, p.plan, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			checkDifferences(t, diffs, c.want)
		})
	}
}

func checkDifferences(t *testing.T, diffs []kernel.Difference, want []string) {
	t.Helper()
	for i, d := range diffs {
		if i >= len(want) || !strings.HasPrefix(d.Object, want[i]) {
			t.Errorf("difference %d: %s", i, d)
		}
		if d.Expected == "" || d.Found == "" || d.Expected == d.Found {
			t.Errorf("difference %d says nothing: %+v", i, d)
		}
	}
	if len(diffs) != len(want) {
		t.Errorf("%d differences, want %d: %q", len(diffs), len(want), want)
	}
}

// TestCompareNoticesAnotherPeer: an interface of the right name that leads
// somewhere else.
func TestCompareNoticesAnotherPeer(t *testing.T) {
	w := newWorld(t)
	p := w.attached("10.42.3.7")
	p.Do(func() {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetName(eth0, "old"); err != nil {
			t.Fatal(err)
		}
		impostor := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "other"}
		if err := netlink.LinkAdd(impostor); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(impostor); err != nil {
			t.Fatal(err)
		}
	})
	diffs, err := w.h.Compare(p.ns, p.plan)
	if err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, diffs, []string{"peer of link eth0", "address 10.42.3.7/32", "route 0.0.0.0/0", "neighbour 10.42.3.7"})
}
