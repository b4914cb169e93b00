// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
)

func prefixes(list ...string) (p []netip.Prefix) {
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func testNode() kernel.Node {
	return kernel.Node{
		Gateways: []netip.Addr{gateway4, gateway6},
		Table:    "weft.mynet",
		Sources:  prefixes("10.42.3.0/24", "fd00:42:3::/64"),
		Pools:    prefixes("10.42.0.0/16", "10.43.0.0/16", "fd00:42::/32"),
		IPv4:     true, IPv6: true,
	}
}

func (w *world) ensure(n kernel.Node) {
	w.Helper()
	if err := w.h.EnsureNode(n); err != nil {
		w.Fatal(err)
	}
}

func (w *world) compareNode(n kernel.Node) []kernel.Difference {
	w.Helper()
	diffs, err := w.h.CompareNode(n)
	if err != nil {
		w.Fatal(err)
	}
	return diffs
}

// outside is a machine beyond the node, with addresses in and out of the pools.
func (w *world) outside() *nstest.NS {
	w.Helper()
	n := nstest.New(w)
	fd := n.FD()
	w.host.Do(func() {
		uplink := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(fd),
		}
		if err := netlink.LinkAdd(uplink); err != nil {
			w.Fatal(err)
		}
		configure(w, uplink, "198.51.100.1/24", "2001:db8:1::1/64")
		// Its second address belongs to a pool, as a pod's on another node.
		addRoute(w, uplink, "10.43.0.9/32", "")
		addRoute(w, uplink, "fd00:42:9::9/128", "")
	})
	n.Do(func() {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			w.Fatal(err)
		}
		configure(w, eth0, "198.51.100.2/24", "2001:db8:1::2/64", "10.43.0.9/32", "fd00:42:9::9/128")
		addRoute(w, eth0, "10.42.3.0/24", "198.51.100.1")
		addRoute(w, eth0, "fd00:42:3::/64", "2001:db8:1::1")
	})
	return n
}

func configure(t testing.TB, l netlink.Link, addrs ...string) {
	t.Helper()
	err := netlink.LinkSetUp(l)
	for _, s := range addrs {
		a := parseAddr(s)
		if strings.Contains(s, ":") {
			a.Flags = 0x02 // IFA_F_NODAD
		}
		err = errors.Join(err, netlink.AddrAdd(l, a))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range addrs {
		if a := netip.MustParsePrefix(s).Addr(); a.Is6() {
			awaitLocal(t, a)
		}
	}
}

func addRoute(t testing.TB, l netlink.Link, dst, via string) {
	t.Helper()
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: cidr(dst)}
	if via != "" {
		r.Gw = netip.MustParseAddr(via).AsSlice()
		r.Flags = int(netlink.FLAG_ONLINK)
	}
	if err := netlink.RouteAdd(r); err != nil {
		t.Fatalf("route %s: %v", dst, err)
	}
}

func TestMasqueradeWithRealPackets(t *testing.T) {
	nstest.Need(t, "inet nat", "ipv4 nat", "ipv6 nat")
	w := newWorld(t)
	w.ensure(testNode())
	out := w.outside()
	a := w.attached("10.42.3.7", "fd00:42:3::7")
	b := w.attached("10.42.3.8", "fd00:42:3::8")
	for _, c := range []struct {
		name    string
		to      *nstest.NS
		dst     string
		wantSrc string
	}{
		{"out of the pools", out, "198.51.100.2", "198.51.100.1"},
		{"ipv6, out of the pools", out, "2001:db8:1::2", "2001:db8:1::1"},
		{"another node's pod", out, "10.43.0.9", "10.42.3.7"},
		{"ipv6, another node's pod", out, "fd00:42:9::9", "fd00:42:3::7"},
		{"this node's pod", b.NS, "10.42.3.8", "10.42.3.7"},
		{"ipv6, this node's pod", b.NS, "fd00:42:3::8", "fd00:42:3::7"},
	} {
		src, err := exchange(t, a.NS, c.to, netip.MustParseAddr(c.dst))
		if err != nil || src.String() != c.wantSrc {
			t.Errorf("%s: %s sees source %s, error %v, want %s", c.name, c.dst, src, err, c.wantSrc)
		}
	}
	if err := w.h.RemoveNode(testNode()); err != nil {
		t.Fatal(err)
	}
	// The proof that it was our rule.
	if src, err := exchange(t, a.NS, out, netip.MustParseAddr("198.51.100.2")); err != nil || src.String() != "10.42.3.7" {
		t.Errorf("after removal: source %s, error %v, want the pod's own", src, err)
	}
}

func TestEnsureNodeIsIdempotent(t *testing.T) {
	w := newWorld(t)
	n := testNode()
	if len(w.compareNode(n)) == 0 {
		t.Error("an untouched host counts as ensured")
	}
	w.ensure(n)
	handles := ruleHandles(w, n.Table)
	for range 3 {
		w.ensure(n)
	}
	if again := ruleHandles(w, n.Table); fmt.Sprint(again) != fmt.Sprint(handles) || len(handles) != 2 {
		t.Errorf("rule handles %v, then %v: want the same two", handles, again)
	}
	checkDifferences(t, w.compareNode(n), nil)

	n.Pools = append(n.Pools, prefixes("10.44.0.0/16")...)
	checkDifferences(t, w.compareNode(n), []string{"masquerade rules", "set direct4"})
	w.ensure(n) // a new configuration replaces the table
	checkDifferences(t, w.compareNode(n), nil)

	for range 2 {
		if err := w.h.RemoveNode(n); err != nil {
			t.Fatal(err)
		}
	}
	checkDifferences(t, w.compareNode(n), []string{"gateway 169.254.1.1", "gateway fd00:42::1", "masquerade rules"})
}

// ruleHandles identifies the rules of a table: a replaced rule has another.
func ruleHandles(w *world, table string) (handles []uint64) {
	w.host.Do(func() {
		c, err := nftables.New()
		if err != nil {
			w.Fatal(err)
		}
		t := &nftables.Table{Name: table, Family: nftables.TableFamilyINet}
		rules, err := c.GetRules(t, &nftables.Chain{Name: "postrouting", Table: t})
		if err != nil {
			w.Fatal(err)
		}
		for _, r := range rules {
			handles = append(handles, r.Handle)
		}
	})
	return handles
}

// TestEnsureNodeConcurrently: as many callers as pods that start together, and
// not one rule twice.
func TestEnsureNodeConcurrently(t *testing.T) {
	w := newWorld(t)
	n := testNode()
	errs := make([]error, 8)
	for round := range 10 {
		n.Pools = prefixes("10.42.0.0/16", fmt.Sprintf("10.%d.0.0/16", 100+round))
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = w.h.EnsureNode(n) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if handles := ruleHandles(w, n.Table); len(handles) != 2 {
			t.Fatalf("round %d: %d rules, want 2", round, len(handles))
		}
		checkDifferences(t, w.compareNode(n), nil)
	}
}

func TestEnsureNodeRepairs(t *testing.T) {
	table := &nftables.Table{Name: "weft.mynet", Family: nftables.TableFamilyINet}
	for _, c := range []struct {
		name   string
		tamper func(c *nftables.Conn) error
		want   []string
	}{
		{"table deleted", func(c *nftables.Conn) error { c.DelTable(table); return nil }, []string{"masquerade rules"}},
		{"rule deleted", func(c *nftables.Conn) error {
			rules, err := c.GetRules(table, &nftables.Chain{Name: "postrouting", Table: table})
			if err != nil {
				return err
			}
			return c.DelRule(rules[0])
		}, []string{"masquerade rules"}},
		{"rule added", func(c *nftables.Conn) error {
			c.InsertRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "postrouting", Table: table},
				Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
			return nil
		}, []string{"masquerade rules"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.ensure(testNode())
			w.host.Do(func() { nftDo(t, c.tamper) })
			checkDifferences(t, w.compareNode(testNode()), c.want)
			w.ensure(testNode())
			checkDifferences(t, w.compareNode(testNode()), nil)
		})
	}
}

func nftDo(t *testing.T, fn func(c *nftables.Conn) error) {
	t.Helper()
	c, err := nftables.New()
	if err == nil {
		err = fn(c)
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCompareNodeReadsTheSets: an element that somebody removed.
func TestCompareNodeReadsTheSets(t *testing.T) {
	w := newWorld(t)
	w.ensure(testNode())
	w.host.Do(func() {
		nftDo(t, func(c *nftables.Conn) error {
			set, err := c.GetSetByName(&nftables.Table{Name: "weft.mynet", Family: nftables.TableFamilyINet}, "sources4")
			if err == nil {
				c.FlushSet(set)
			}
			return err
		})
	})
	checkDifferences(t, w.compareNode(testNode()), []string{"set sources4 of table inet weft.mynet"})
}

// TestNodeWithoutSources has nothing to masquerade, and so no table.
func TestNodeWithoutSources(t *testing.T) {
	w := newWorld(t)
	w.ensure(testNode())
	n := testNode()
	n.Sources = nil
	w.ensure(n)
	w.ensure(n)
	checkDifferences(t, w.compareNode(n), nil)
	if tables := inetTables(t, w); len(tables) != 0 {
		t.Errorf("tables %v, want none", tables)
	}
}

func inetTables(t *testing.T, w *world) (names []string) {
	w.host.Do(func() {
		c, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		tables, err := c.ListTables()
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			names = append(names, fmt.Sprintf("%d %s %d", table.Family, table.Name, table.Use))
		}
	})
	return names
}

func TestForeignTablesStayUntouched(t *testing.T) {
	w := newWorld(t)
	w.host.Do(func() {
		nftDo(t, func(c *nftables.Conn) error {
			for _, f := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyINet} {
				// The very name of ours in another family, and a neighbour's in ours.
				name := map[bool]string{true: "weft.mynet", false: "weft.mynet2"}[f == nftables.TableFamilyIPv4]
				table := c.AddTable(&nftables.Table{Name: name, Family: f})
				c.AddChain(&nftables.Chain{Name: "postrouting", Table: table})
			}
			return nil
		})
	})
	before := fmt.Sprint(inetTables(t, w))
	w.ensure(testNode())
	if err := w.h.RemoveNode(testNode()); err != nil {
		t.Fatal(err)
	}
	if after := fmt.Sprint(inetTables(t, w)); after != before {
		t.Errorf("tables %s, before %s", after, before)
	}
}

func TestForwardingIsWrittenOnlyWhereNeeded(t *testing.T) {
	w := newWorld(t)
	writeProc(t, w.host, "net/ipv4/ip_forward", "0")
	writeProc(t, w.host, "net/ipv6/conf/all/forwarding", "0")
	checkDifferences(t, w.compareNode(kernel.Node{IPv4: true, IPv6: true}), []string{"sysctl net/ipv4/ip_forward", "sysctl net/ipv6"})
	w.ensure(kernel.Node{IPv4: true})
	if v := readProc(t, w, "net/ipv6/conf/all/forwarding"); v != "0" {
		t.Error("IPv6 forwarding was enabled for an IPv4 node")
	}
	// Writing net.ipv4.ip_forward resets every interface's forwarding, and so
	// shows whether it was written.
	writeProc(t, w.host, "net/ipv4/conf/lo/forwarding", "0")
	w.ensure(kernel.Node{IPv4: true, IPv6: true})
	if v := readProc(t, w, "net/ipv4/conf/lo/forwarding"); v != "0" {
		t.Error("ip_forward was written although it was 1")
	}
	if v := readProc(t, w, "net/ipv6/conf/all/forwarding"); v != "1" {
		t.Errorf("IPv6 forwarding is %s", v)
	}
}

// TestGatewayThatTheHostHas: an address of the host's own answers already.
func TestGatewayThatTheHostHas(t *testing.T) {
	w := newWorld(t)
	n := kernel.Node{Gateways: []netip.Addr{nodeAddr4, nodeAddr6}}
	w.ensure(n)
	if err := w.h.RemoveNode(n); err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, w.compareNode(n), nil) // still there: it was never ours
}

// TestRulesetIsReadable: `nft list ruleset` is an operator's first tool.
func TestRulesetIsReadable(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("no nft command: apt-get install nftables")
	}
	w := newWorld(t)
	w.ensure(testNode())
	var out []byte
	w.host.Do(func() { out, err = exec.Command(nft, "list", "ruleset").CombinedOutput() })
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"table inet weft.mynet {", "elements = { 10.42.3.0/24 }", "10.42.0.0/15", "224.0.0.0/4",
		"type nat hook postrouting priority srcnat; policy accept;",
		"ip saddr @sources4 ip daddr != @direct4 masquerade fully-random comment \"weft 1/2 ",
		"ip6 saddr @sources6 ip6 daddr != @direct6 masquerade fully-random comment \"weft 2/2 ",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nft does not show %q:\n%s", want, out)
		}
	}
}
