// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/kernel"
)

var families = map[string][]string{
	"ipv4": {"10.42.3.7"},
	"ipv6": {"fd00:42:3::7"},
	"dual": {"10.42.3.7", "fd00:42:3::7"},
}

// TestAttachMakesThePlanReal reads everything back with another library.
func TestAttachMakesThePlanReal(t *testing.T) {
	for name, addrs := range families {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.attached(addrs...)
			w.noDifference(p, kernel.CompareOptions{MAC: true, MTU: true})
			p.Do(func() { checkPodEnd(t, p) })
			w.host.Do(func() { checkHostEnd(t, p) })
		})
	}
}

func checkPodEnd(t *testing.T, p *pod) {
	l, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Attrs()
	if at.HardwareAddr.String() != p.plan.MAC.String() || at.MTU != 1450 || at.Flags&unix.IFF_UP == 0 {
		t.Errorf("pod end: mac %s mtu %d flags %v", at.HardwareAddr, at.MTU, at.Flags)
	}
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range addrs {
		got = append(got, a.IPNet.String())
		if a.Flags&unix.IFA_F_TENTATIVE != 0 {
			t.Errorf("address %s is tentative", a)
		}
	}
	// The list is exact: no address appeared that the plan does not name.
	if want := fmt.Sprint(p.plan.Addresses); fmt.Sprint(got) != want {
		t.Errorf("addresses %v, want %s", got, want)
	}
	routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	gateways := 0
	for _, r := range routes {
		if r.Gw != nil {
			gateways++
		}
	}
	if gateways != len(p.plan.Routes) {
		t.Errorf("%d routes with a gateway, want %d: %v", gateways, len(p.plan.Routes), routes)
	}
	checkNeighbours(t, l, p.plan.Neighbours)
}

func checkHostEnd(t *testing.T, p *pod) {
	l, err := netlink.LinkByName(p.plan.HostIfname)
	if err != nil {
		t.Fatal(err)
	}
	at := l.Attrs()
	if at.Alias != p.plan.Alias || at.HardwareAddr.String() != attach.HostMAC.String() || at.MTU != 1450 || at.Flags&unix.IFF_UP == 0 {
		t.Errorf("host end: alias %q mac %s mtu %d flags %v", at.Alias, at.HardwareAddr, at.MTU, at.Flags)
	}
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil || len(addrs) != 0 {
		t.Errorf("host end has addresses %v, error %v", addrs, err)
	}
	var got []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: at.Index, Protocol: kernel.RouteProtocol},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			got = append(got, r.Dst.String())
		}
	}
	if want := fmt.Sprint(p.plan.HostRoutes); fmt.Sprint(got) != want {
		t.Errorf("host routes %v, want %s", got, want)
	}
	checkNeighbours(t, l, p.plan.HostNeighbours)
}

func checkNeighbours(t *testing.T, l netlink.Link, want []attach.Neighbour) {
	var have []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.NeighList(l.Attrs().Index, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			// The host learns a pod's IPv4 address anew when it changes; such
			// an entry must be usable at once and never be collected.
			learned := n.State&(netlink.NUD_STALE|netlink.NUD_REACHABLE|netlink.NUD_DELAY) != 0 && n.Flags&netlink.NTF_EXT_LEARNED != 0
			if n.State == netlink.NUD_PERMANENT || (learned && family == netlink.FAMILY_V4) {
				have = append(have, n.IP.String()+" "+n.HardwareAddr.String())
			}
		}
	}
	for _, n := range want {
		if s := n.Addr.String() + " " + n.MAC.String(); !strings.Contains(strings.Join(have, "\n"), s) {
			t.Errorf("no neighbour %s on %s; there are %v", s, l.Attrs().Name, have)
		}
	}
}

// TestPackets sends real ones: pod to pod through the host, pod to gateway,
// host to pod.
func TestPackets(t *testing.T) {
	w := newWorld(t)
	if err := w.h.EnsureNode(kernel.Node{
		Gateways: []netip.Addr{gateway4, gateway6, attach.DefaultGateway6}, IPv4: true, IPv6: true,
	}); err != nil {
		t.Fatal(err)
	}
	a := w.attached("10.42.3.7", "fd00:42:3::7")
	b := w.attached("10.42.3.8", "fd00:42:3::8")
	for _, like := range []netip.Addr{gateway4, gateway6} {
		src, err := exchange(t, a.NS, b.NS, b.addr(like))
		if err != nil || src != a.addr(like) {
			t.Errorf("udp %s to %s: source %s, error %v", a.addr(like), b.addr(like), src, err)
		}
		if err := stream(t, a.NS, b.NS, b.addr(like)); err != nil {
			t.Errorf("tcp %s to %s: %v", a.addr(like), b.addr(like), err)
		}
		for _, dst := range []netip.Addr{b.addr(like), like} {
			if err := ping(t, a.NS, dst); err != nil {
				t.Errorf("ping %s from %s: %v", dst, a.addr(like), err)
			}
		}
		if err := ping(t, w.host, a.addr(like)); err != nil {
			t.Errorf("ping %s from the host: %v", a.addr(like), err)
		}
	}
}

// TestFirstPacketArrives: a carrier event that is still on its way would lose
// the host's packets for a while after Attach.
func TestFirstPacketArrives(t *testing.T) {
	w := newWorld(t)
	for _, kind := range []string{"10.42.3.", "fd00:42:3::"} {
		for i := 10; i < 35; i++ {
			p := w.newPod(kind + fmt.Sprint(i))
			w.attach(p)
			addr := p.plan.Addresses[0].Addr()
			if err := ping(t, w.host, addr); err != nil {
				t.Fatalf("first packet to %s: %v", addr, err)
			}
		}
	}
}

func TestAttachRefusesTakenNames(t *testing.T) {
	w := newWorld(t)
	p := w.attached("10.42.3.7")

	t.Run("in the sandbox", func(t *testing.T) {
		plan := w.newPod("10.42.3.8").plan // another host end, the same eth0
		err := w.h.Attach(p.ns, plan)
		var exists *kernel.ExistsError
		if !errors.As(err, &exists) || exists.Ifname != "eth0" {
			t.Fatalf("error %v, want ExistsError for eth0", err)
		}
		if w.linkExists(plan.HostIfname) {
			t.Error("a host end was left behind")
		}
	})
	t.Run("on the host", func(t *testing.T) {
		other := w.newPod("10.42.3.8")
		other.plan.HostIfname = p.plan.HostIfname
		err := w.h.Attach(other.ns, other.plan)
		var exists *kernel.HostLinkExistsError
		if !errors.As(err, &exists) || exists.Alias != p.plan.Alias {
			t.Fatalf("error %v, want HostLinkExistsError with the alias of the first", err)
		}
		other.Do(func() {
			if _, err := netlink.LinkByName("eth0"); err == nil {
				t.Error("a pod end was left behind")
			}
		})
	})
	w.noDifference(p, kernel.CompareOptions{MAC: true, MTU: true}) // the first is unharmed
}

func TestAttachRefusesAnAddressInUse(t *testing.T) {
	for name, addrs := range families {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.attached(addrs...)
			second := w.newPod(addrs...)
			err := w.h.Attach(second.ns, second.plan)
			var exists *kernel.RouteExistsError
			if !errors.As(err, &exists) || exists.Device != first.plan.HostIfname {
				t.Fatalf("error %v, want RouteExistsError naming %s", err, first.plan.HostIfname)
			}
			if err := w.h.Detach(second.plan.HostIfname); err != nil {
				t.Fatal(err)
			}
			w.noDifference(first)
		})
	}
}

// TestRoutesWithEveryField covers what CNI 1.1 lets a route say.
func TestRoutesWithEveryField(t *testing.T) {
	w := newWorld(t)
	table, big, link := 77, 100_000, attach.ScopeLink
	p := w.newPod("10.42.3.7", "fd00:42:3::7")
	p.plan.Routes = append(p.plan.Routes, []attach.Route{
		{Dst: netip.MustParsePrefix("10.96.0.0/12"), Gateway: gateway4, MTU: 1300, AdvMSS: 1200, Priority: 50},
		{Dst: netip.MustParsePrefix("10.97.0.0/16"), Gateway: gateway4, Table: &table},
		{Dst: netip.MustParsePrefix("10.98.0.0/16"), Gateway: gateway4, Table: &big},
		{Dst: netip.MustParsePrefix("10.99.0.0/16"), Scope: &link},
		{Dst: netip.MustParsePrefix("fd00:96::/112"), Gateway: gateway6, MTU: 1300, AdvMSS: 1200, Priority: 50},
		{Dst: netip.MustParsePrefix("fd00:97::/112"), Gateway: gateway6, Table: &big},
		{Dst: netip.MustParsePrefix("fd00:99::/64"), Scope: &link},
	}...)
	w.attach(p)
	w.noDifference(p)
	p.Do(func() {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: big}, netlink.RT_FILTER_TABLE)
		if err != nil || len(routes) != 1 || routes[0].Dst.String() != "10.98.0.0/16" {
			t.Errorf("table %d: %v, error %v", big, routes, err)
		}
		dst := &net.IPNet{IP: net.IPv4(10, 96, 0, 0), Mask: net.CIDRMask(12, 32)}
		routes, err = netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
		if err != nil || len(routes) != 1 || routes[0].MTU != 1300 || routes[0].AdvMSS != 1200 || routes[0].Priority != 50 {
			t.Errorf("10.96.0.0/12: %v, error %v", routes, err)
		}
	})
}

func TestProxyARPAnswersForLinkScopeRoutes(t *testing.T) {
	w := newWorld(t)
	if err := w.h.EnsureNode(kernel.Node{IPv4: true}); err != nil {
		t.Fatal(err)
	}
	b := w.attached("10.42.3.8")
	a := w.newPod("10.42.3.7")
	link := attach.ScopeLink
	a.plan.Routes = []attach.Route{{Dst: netip.MustParsePrefix("10.42.0.0/16"), Scope: &link}}
	a.plan.ProxyARP = true
	w.attach(a)
	w.noDifference(a)
	if _, err := exchange(t, a.NS, b.NS, b.addr(gateway4)); err != nil {
		t.Errorf("udp over a link-scope route: %v", err)
	}
	if v := readProc(t, w, "net/ipv4/neigh/"+a.plan.HostIfname+"/proxy_delay"); v != "0" {
		t.Errorf("proxy_delay is %s, want 0", v)
	}
}

func readProc(t *testing.T, w *world, key string) (value string) {
	w.host.Do(func() {
		b, err := os.ReadFile("/proc/sys/" + key)
		if err != nil {
			t.Fatal(err)
		}
		value = strings.TrimSpace(string(b))
	})
	return value
}

func TestIPv6DisabledInTheSandbox(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("10.42.3.7", "fd00:42:3::7")
	writeProc(t, p.NS, "net/ipv6/conf/all/disable_ipv6", "1")
	writeProc(t, p.NS, "net/ipv6/conf/default/disable_ipv6", "1")
	w.attach(p)
	w.noDifference(p)
	if err := ping(t, w.host, p.addr(gateway6)); err != nil {
		t.Error(err)
	}
	p.Do(func() {
		b, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6")
		if err != nil || strings.TrimSpace(string(b)) != "1" {
			t.Errorf("other interfaces: disable_ipv6 is %q, error %v; want it left at 1", b, err)
		}
	})
}

// TestSmallMTU: below 1280 bytes the kernel has no IPv6 on a link at all, which
// must not disturb an IPv4 attachment. The same code path serves kernels that
// were built without IPv6.
func TestSmallMTU(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("10.42.3.7")
	p.plan.MTU = attach.MinMTU
	w.attach(p)
	w.noDifference(p, kernel.CompareOptions{MTU: true})
}

// TestSilence: an attachment says nothing by itself.
func TestSilence(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("10.42.3.7")
	if frames := sniff(t, w.host, func() { w.attach(p) }); len(frames) != 0 {
		t.Errorf("an IPv4 attachment sent %d frames, first % x", len(frames), frames[0])
	}
	p = w.newPod("fd00:42:3::7")
	for _, f := range sniff(t, w.host, func() { w.attach(p) }) {
		const neighbourSolicitation = 135
		if len(f) > 54 && f[20] == unix.IPPROTO_ICMPV6 && f[54] == neighbourSolicitation {
			t.Errorf("an address was probed or resolved: % x", f)
		}
		if string(f[6:12]) == string(attach.HostMAC[:]) {
			t.Errorf("the host end spoke: % x", f)
		}
	}
}

func TestSysctls(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("10.42.3.7")
	p.plan.Sysctls = []attach.Sysctl{
		{Key: "net.ipv4.conf.eth0.arp_filter", Value: "1"},
		{Key: "net/ipv4/ip_local_port_range", Value: "1024\t65000"},
	}
	w.attach(p)
	p.Do(func() {
		b, err := os.ReadFile("/proc/sys/net/ipv4/conf/eth0/arp_filter")
		if err != nil || string(b) != "1\n" {
			t.Errorf("arp_filter %q, error %v", b, err)
		}
	})
	for _, key := range []string{"net.ipv4.no_such_key", "kernel.hostname", "net.ipv4..x", "net/../kernel/hostname", "net"} {
		q := w.newPod("10.42.3.9")
		q.plan.Sysctls = []attach.Sysctl{{Key: key, Value: "1"}}
		err := w.h.Attach(q.ns, q.plan)
		var bad *kernel.SysctlError
		if !errors.As(err, &bad) || bad.Key != key {
			t.Errorf("sysctl %q: error %v, want SysctlError naming it", key, err)
		}
		if err := w.h.Detach(q.plan.HostIfname); err != nil {
			t.Fatal(err)
		}
	}
}

// TestErrorsTellWhatAndWhy: the object, and the kernel's own words.
func TestErrorsTellWhatAndWhy(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("10.42.3.7")
	bad := attach.ScopeLink
	p.plan.Routes = []attach.Route{{Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: gateway4, Scope: &bad}}
	err := w.h.Attach(p.ns, p.plan)
	var refused *kernel.OpError
	if !errors.As(err, &refused) || !errors.Is(err, unix.EINVAL) {
		t.Fatalf("error %v, want OpError", err)
	}
	for _, want := range []string{"add route 10.9.0.0/16 via 169.254.1.1 dev eth0", "invalid argument", "kernel: ", "sandbox"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// TestConcurrentAttach: different pods in parallel on one Handle.
func TestConcurrentAttach(t *testing.T) {
	w := newWorld(t)
	var pods []*pod
	for i := range 32 {
		pods = append(pods, w.newPod(fmt.Sprintf("10.42.3.%d", i+1), fmt.Sprintf("fd00:42:3::%d", i+1)))
	}
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() { errs[i] = w.h.Attach(p.ns, p.plan) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		w.noDifference(p, kernel.CompareOptions{MAC: true, MTU: true})
	}
}

func TestLinkExists(t *testing.T) {
	w := newWorld(t)
	p := w.attached("10.42.3.7")
	for name, want := range map[string]bool{"eth0": true, "lo": true, "eth1": false, p.plan.HostIfname: false} {
		if found, err := w.h.LinkExistsIn(p.ns, name); err != nil || found != want {
			t.Errorf("%s in the sandbox: %v, error %v, want %v", name, found, err, want)
		}
	}
	for name, want := range map[string]bool{"eth0": false, "lo": true, p.plan.HostIfname: true} {
		if found := w.linkExists(name); found != want {
			t.Errorf("%s on the host: %v, want %v", name, found, want)
		}
	}
}

// TestDetachAfterTheSandboxIsGone: the kernel deletes the pair with the
// namespace, in its own time; either way Detach succeeds.
func TestDetachAfterTheSandboxIsGone(t *testing.T) {
	w := newWorld(t)
	var name string
	t.Run("sandbox", func(t *testing.T) {
		inner := &world{TB: t, host: w.host, h: w.h, pods: 50}
		name = inner.attached("10.42.3.7").plan.HostIfname
	})
	if err := w.h.Detach(name); err != nil {
		t.Fatal(err)
	}
	if w.linkExists(name) {
		t.Error("the host end is still there")
	}
}
