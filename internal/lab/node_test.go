// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/lab/probe"
)

// The tests in this file are about nodes and links, with fake agents.

// TestThinHasNoAgents: what is for agents is refused, and nothing happens.
func TestThinHasNoAgents(t *testing.T) {
	f := newFake(t)
	f.up(t)
	defer f.host.Down(t.Context(), "fake")
	unchanged := observe(t, f.host.BinDir)
	noAgent := (*NoAgentError)(nil)
	for verb, err := range map[string]error{
		"start": f.host.StartNode(t.Context(), "fake", "node1"),
		"stop":  f.host.StopNode("fake", "node1"),
		"kill":  f.host.KillNode("fake", "node1"),
	} {
		if !errors.As(err, &noAgent) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if _, err := f.host.AddNode(t.Context(), "fake", 0); !errors.As(err, &noAgent) {
		t.Errorf("add: %v", err)
	}
	unchanged("after refused calls")
}

// TestLink: cut and restored, each twice; the node sees its carrier go and come
// and status tells.
func TestLink(t *testing.T) {
	f := newFake(t)
	f.up(t)
	defer f.host.Down(t.Context(), "fake")
	for _, tc := range []struct {
		set     func(name, node string) error
		link    string
		carrier string
	}{
		{f.host.CutLink, LinkCut, "0"}, {f.host.CutLink, LinkCut, "0"},
		{f.host.RestoreLink, LinkUp, "1"}, {f.host.RestoreLink, LinkUp, "1"},
	} {
		if err := tc.set("fake", "node1"); err != nil {
			t.Fatal(err)
		}
		s, err := f.host.Status(t.Context(), "fake")
		if err != nil || s.Nodes[0].Link != tc.link || s.Healthy() != (tc.link == LinkUp) {
			t.Errorf("status: %+v, %v; want link %s", s.Nodes, err, tc.link)
		}
		if got := carrier(t, f.host.layout("fake").netns("node1")); got != tc.carrier {
			t.Errorf("link %s: carrier %s", tc.link, got)
		}
	}
	wantError(t, f.host.CutLink("fake", "node7"), `"node7"`)
	wantError(t, f.host.CutLink("fake", ""), "no node")
}

// carrier returns what the kernel says of a node's uplink: 1 or 0.
func carrier(t *testing.T, netns string) string {
	t.Helper()
	h, ns, err := netlinkIn(netns)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	defer h.Close()
	link, err := h.LinkByName(UplinkName)
	if err != nil {
		t.Fatal(err)
	}
	if link.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
		return "0"
	}
	return "1"
}

// TestUnderlay: in each family every node reaches every other, whatever its
// segment, and the outside; of the other family a node has nothing.
func TestUnderlay(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6, Dual} {
		t.Run(string(family), func(t *testing.T) {
			f := newFakeCluster(t)
			f.spec.Family, f.spec.Nodes = family, 3
			f.up(t)
			defer f.host.Down(t.Context(), "fake")
			topo := NewTopology(family, 3, 2)
			for _, from := range topo.Nodes {
				path := f.host.layout("fake").netns(from.Name)
				for _, to := range targets(topo, from) {
					if err := inNetns(path, func() error { _, err := probe.Ping(t.Context(), to, ""); return err }); err != nil {
						t.Errorf("%s: %v", from.Name, err)
					}
				}
				if got := globals(t, path); !slices.Equal(got, bare(from.Addrs)) {
					t.Errorf("%s has the global addresses %v, want %v", from.Name, got, from.Addrs)
				}
			}
		})
	}
}

// TestSetNodeAddresses: the node has the new ones and no old one, and reaches
// what it reached; what is taken or elsewhere is refused.
func TestSetNodeAddresses(t *testing.T) {
	f := newFakeCluster(t)
	f.up(t)
	defer f.host.Down(t.Context(), "fake")
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, s := range texts {
			all = append(all, netip.MustParseAddr(s))
		}
		return all
	}
	set := func(texts ...string) error { return f.host.SetNodeAddresses("fake", "node1", addrs(texts...)) }
	for _, tc := range [][]string{
		{"198.18.1.222", "2001:db8:18:1::222"},
		{"198.18.1.222", "2001:db8:18:1::222"}, // again
		{"198.18.1.11", "2001:db8:18:1::222"},  // one family only
		{"2001:db8:18:1::11"},
		{"198.18.1.11", "2001:db8:18:1::11"},
	} {
		if err := set(tc...); err != nil {
			t.Fatal(err)
		}
		path := f.host.layout("fake").netns("node1")
		if got := globals(t, path); !slices.Equal(got, addrs(tc...)) {
			t.Errorf("addresses %v, want %v", got, tc)
		}
		for _, to := range append(bare(NewTopology(Dual, 1, 1).Outside), addrs("198.18.2.12", "2001:db8:18:2::12")...) {
			if _, speaks := inFamilyOf(to, addrs(tc...)); !speaks {
				continue
			}
			if err := inNetns(path, func() error { _, err := probe.Ping(t.Context(), to, ""); return err }); err != nil {
				t.Errorf("with %v: %v", tc, err)
			}
		}
		s, err := f.host.Status(t.Context(), "fake")
		if err != nil || !slices.Equal(bare(s.Nodes[0].Addrs), addrs(tc...)) {
			t.Errorf("status: %+v, %v", s.Nodes, err)
		}
	}
	for want, tc := range map[string][]string{
		"want one": nil, "one of each family": {"198.18.1.222", "198.18.1.223"}, "want one of 198.18.1.0/24": {"198.18.2.222"},
		"not the router's": {"198.18.1.1"}, "another node": {"2001:db8:18:1::12"},
	} {
		wantError(t, set(tc...), want)
	}
}

// targets are the addresses of all nodes but one, and of the outside.
func targets(topo Topology, but Node) []netip.Addr {
	all := bare(topo.Outside)
	for _, n := range topo.Nodes {
		if n.Name != but.Name {
			all = append(all, bare(n.Addrs)...)
		}
	}
	return all
}

// globals returns a namespace's addresses of global scope, IPv4 first. A
// default route needs one of its family.
func globals(t *testing.T, netns string) []netip.Addr {
	t.Helper()
	h, ns, err := netlinkIn(netns)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	defer h.Close()
	addrs, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var all []netip.Addr
	for _, a := range addrs {
		if ip, _ := netip.AddrFromSlice(a.IP); a.Scope == unix.RT_SCOPE_UNIVERSE {
			all = append(all, ip.Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// TestNodesInTurn: the least free number is taken, the segment as asked for,
// and each is registered with an identity of its own.
func TestNodesInTurn(t *testing.T) {
	f := newFakeCluster(t)
	unchanged := observe(t, f.host.BinDir)
	f.up(t)
	l := f.host.layout("fake")
	add := func(segment int, name, where string) {
		t.Helper()
		n, err := f.host.AddNode(t.Context(), "fake", segment)
		if err != nil || n.Name != name || n.Segment != where {
			t.Fatalf("added %+v, %v; want %s on %s", n, err, name, where)
		}
	}
	first, err := os.ReadFile(l.manifest("node2"))
	if err != nil {
		t.Fatal(err)
	}
	add(0, "node3", "segment1")
	if err := f.host.RemoveNode("fake", "node2"); err != nil {
		t.Fatal(err)
	}
	add(1, "node2", "segment1")
	add(2, "node4", "segment2")
	second, err := os.ReadFile(l.manifest("node2"))
	if err != nil || string(first) == string(second) {
		t.Errorf("the second node2 has the identity of the first: %s, %v", second, err)
	}
	_, err = f.host.AddNode(t.Context(), "fake", 3)
	wantError(t, err, "segment 3", "1 to 2")
	s, err := f.host.Status(t.Context(), "fake")
	if err != nil || len(s.Nodes) != 4 || !s.Healthy() {
		t.Errorf("status: %+v, %v", s, err)
	}
	if err := f.host.Down(t.Context(), "fake"); err != nil {
		t.Fatal(err)
	}
	unchanged("after down")
}

// TestAddNodeFails: an agent that does not start leaves no node.
func TestAddNodeFails(t *testing.T) {
	f := newFakeCluster(t)
	f.up(t)
	defer f.host.Down(t.Context(), "fake")
	unchanged := observe(t, f.host.BinDir)
	script := "#!/bin/sh\necho the reason of the agent >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(f.host.BinDir, "weft"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	f.fails(t, "STATUS", true)
	_, err := f.host.AddNode(t.Context(), "fake", 0)
	wantError(t, err, "node3", "the reason of the agent")
	unchanged("after an add that failed")
}

// TestRemoveThinNode: the pods' namespaces go, the plugin is not called.
func TestRemoveThinNode(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	f.up(t)
	if _, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := f.host.RemoveNode("fake", "node1"); err != nil {
		t.Fatal(err)
	}
	if calls := f.calls(t, "DEL"); len(calls) != 0 {
		t.Errorf("DEL was called: %v", calls)
	}
	s, err := f.host.Status(t.Context(), "fake")
	if err != nil || len(s.Nodes) != 0 || len(s.Pods) != 0 {
		t.Errorf("status: %+v, %v; want no node and no pod", s, err)
	}
	wantError(t, f.host.RemoveNode("fake", "node1"), `"node1"`)
	_, err = f.host.AddPod(t.Context(), "fake", PodSpec{Name: "a"})
	wantError(t, err, "no node")
	if err := f.host.Down(t.Context(), "fake"); err != nil {
		t.Fatal(err)
	}
	unchanged("after down")
}
