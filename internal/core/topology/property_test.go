// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
)

// TestStepByStepEqualsFromScratch: after any sequence of changes, and however
// they are grouped between calls of Updates, a Map and Compute agree.
func TestStepByStepEqualsFromScratch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, m, held := newWorld(), NewMap(), newObjects()
		t.Repeat(map[string]func(*rapid.T){
			"SetSelf": func(t *rapid.T) {
				w.self = drawSelf.Draw(t, "self")
				m.SetSelf(w.self)
			},
			"SetNode": func(t *rapid.T) {
				name, known := drawNode.Draw(t, "node"), rapid.IntRange(0, 3).Draw(t, "known") > 0
				w.nodes[name] = known
				m.SetNode(name, known)
			},
			"SetLease": func(t *rapid.T) {
				l := drawLease.Draw(t, "lease")
				w.leases[l.Name()] = l
				m.SetLease(l)
			},
			"SetLease, twice as often": func(t *rapid.T) {
				l := drawLease.Draw(t, "lease")
				w.leases[l.Name()] = l
				m.SetLease(l)
			},
			"DeleteLease": func(t *rapid.T) {
				name := cluster.LeaseName(drawSubnet.Draw(t, "subnet"))
				if names := slices.Sorted(maps.Keys(w.leases)); len(names) > 0 && rapid.Bool().Draw(t, "existing") {
					name = rapid.SampledFrom(names).Draw(t, "name")
				}
				delete(w.leases, name)
				m.DeleteLease(name)
			},
			"": func(t *rapid.T) {
				switch rapid.SampledFrom([]string{"updates", "updates", "views", "nothing"}).Draw(t, "look at") {
				case "nothing":
					return
				case "views":
					if err := w.checkViews(m); err != nil {
						t.Fatal(err)
					}
					return
				}
				if _, err := fold(held, m.Updates()); err != nil {
					t.Fatal(err)
				}
				if err := w.check(m, held); err != nil {
					t.Fatal(err)
				}
				if found := w.conflict(); found != "" && !m.disputed {
					t.Fatalf("conflict not noticed: %s", found)
				}
				if again := m.Updates(); fmt.Sprint(again) != fmt.Sprint(Updates{}) {
					t.Fatalf("Updates without a change: %+v", again)
				}
			},
		})
	})
}

// conflict describes one between any two leases, if there is one.
func (w *world) conflict() string {
	for name, l := range w.leases {
		e := newEntry(name, l)
		for other, l := range w.leases {
			o := newEntry(other, l)
			if found := e.conflict(&o); name != other && found != "" {
				return name + " " + found
			}
		}
	}
	return ""
}

// TestNothingIsLeft: a Map forgets what is gone, and returns to where it began.
func TestNothingIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, held := NewMap(), newObjects()
		m.SetSelf(drawSelf.Draw(t, "self"))
		for _, l := range rapid.SliceOf(drawLease).Draw(t, "leases") {
			m.SetLease(l)
			m.SetNode(l.Node, true)
			if rapid.Bool().Draw(t, "updates") {
				if _, err := fold(held, m.Updates()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for name := range maps.Clone(m.leases) {
			m.DeleteLease(name)
		}
		for name := range maps.Clone(m.members) {
			m.SetNode(name, false)
		}
		m.SetSelf(Self{})
		if _, err := fold(held, m.Updates()); err != nil {
			t.Fatal(err)
		}
		if left := describe(held); len(left) > 0 {
			t.Fatalf("left: %q", left)
		}
		listed := m.roster.len() + len(m.roster.byAddr[ipv4]) + len(m.roster.byAddr[ipv6])
		if len(m.leases)+len(m.members)+listed+m.tunnels[ipv4]+m.tunnels[ipv6] != 0 || m.disputed {
			t.Fatalf("remembered: %+v", m)
		}
	})
}

// TestSelfIsCopied: the caller's list of addresses remains the caller's.
func TestSelfIsCopied(t *testing.T) {
	w, m, held := newWorld(), NewMap(), newObjects()
	for _, command := range []string{everybody, lease2 + near, node1} {
		w.run(t, m, command)
	}
	w.self.Underlay[0].Dev = "uplink9"
	if _, err := fold(held, m.Updates()); err != nil {
		t.Fatal(err)
	}
	if want := "uplink0"; held.Routes[RouteKey{Dst: netip.MustParsePrefix("10.42.5.0/24")}].Value.Dev != want {
		t.Fatalf("routes %v, want device %s", held.Routes, want)
	}
	m.SetSelf(w.self)
	if len(m.Updates().Routes) != 1 {
		t.Fatal("the change was not seen")
	}
}

// TestViewsNeedNoUpdates: Reach and Rejected are up to date before Updates is
// called, and calling them changes nothing in it.
func TestViewsNeedNoUpdates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, m := newWorld(), NewMap()
		looked, held := NewMap(), newObjects()
		for _, n := range rapid.SliceOf(drawNode).Draw(t, "nodes") {
			w.nodes[n] = true
			m.SetNode(n, true)
			looked.SetNode(n, true)
		}
		w.self = drawSelf.Draw(t, "self")
		m.SetSelf(w.self)
		looked.SetSelf(w.self)
		for _, l := range rapid.SliceOf(drawLease).Draw(t, "leases") {
			w.leases[l.Name()] = l
			m.SetLease(l)
			looked.SetLease(l)
			_, reach := w.compute()
			if err := same("reach", describeReach(looked.Reach()), describeReach(reach)); err != nil {
				t.Fatal(err)
			}
			looked.Rejected()
		}
		lines, err := fold(held, looked.Updates())
		if err != nil {
			t.Fatal(err)
		}
		want, err := fold(newObjects(), m.Updates())
		if err != nil {
			t.Fatal(err)
		}
		if err := same("updates", lines, want); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOrderOfLeasesDoesNotMatter: Compute sees a set.
func TestOrderOfLeasesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		self := drawSelf.Draw(t, "self")
		nodes := map[string]bool{"node1": true, "node2": true, "node3": true, "node4": true}
		leases := rapid.SliceOfDistinct(drawLease, cluster.Lease.Name).Draw(t, "leases")
		objects, reach := Compute(self, nodes, leases)
		shuffled, reachShuffled := Compute(self, nodes, rapid.Permutation(leases).Draw(t, "shuffled"))
		if err := same("shuffled", slices.Concat(describe(shuffled), describeReach(reachShuffled)),
			slices.Concat(describe(objects), describeReach(reach))); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAcceptedLeasesAreDisjoint: no destination is routed twice, but that of a
// pod also as a part of a block, and no node of an accepted lease is cut off by
// the route of one. Each next hop belongs to one lease.
func TestAcceptedLeasesAreDisjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.SliceOfDistinct(drawLease, cluster.Lease.Name).Draw(t, "leases")
		nodes := map[string]bool{"node1": true, "node2": true, "node3": true, "node4": true}
		objects, reach := Compute(drawSelf.Draw(t, "self"), nodes, leases)
		accepted := map[string]bool{}
		for _, r := range reach {
			accepted[r.Lease] = r.Way != Unreachable
		}
		for _, l := range leases {
			for dst := range objects.Routes {
				if accepted[l.Name()] && slices.ContainsFunc(l.Addresses, dst.Dst.Contains) {
					t.Fatalf("route %s leads to a node of an accepted lease, %v", dst.Dst, l.Addresses)
				}
			}
		}
		routes := slices.SortedFunc(maps.Keys(objects.Routes), RouteKey.Compare)
		hops := map[Route]netip.Prefix{}
		for i, r := range routes {
			for _, other := range routes[i+1:] {
				if r.Dst.Overlaps(other.Dst) && r.Dst.IsSingleIP() == other.Dst.IsSingleIP() {
					t.Fatalf("routes %s and %s overlap", r.Dst, other.Dst)
				}
			}
			hop := objects.Routes[r].Value
			if other, twice := hops[hop]; twice && strings.HasPrefix(hop.Dev, "weft") {
				t.Fatalf("routes %s and %s have one next hop, %v", other, r.Dst, hop)
			}
			hops[hop] = r.Dst
		}
	})
}

// TestNodesAgreeOnTheHolders: whatever a node's own place, a lease conflicts
// with the same older one as on any other node.
func TestNodesAgreeOnTheHolders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.SliceOfDistinct(drawLease, cluster.Lease.Name).Draw(t, "leases")
		nodes := map[string]bool{"node1": true, "node2": true, "node3": true, "node4": true}
		conflicts := func() (lines []string) {
			_, reach := Compute(drawSelf.Draw(t, "self"), nodes, leases)
			for _, r := range reach {
				if strings.Contains(r.Reason, leaseOrigin) {
					lines = append(lines, r.Lease+": "+r.Reason)
				}
			}
			return lines
		}
		if err := same("conflicts", conflicts(), conflicts()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTheWayBackIsTheSame: of two nodes that see the same leases and have the
// same idea of who is on their segment, each reaches the other in the same way.
func TestTheWayBackIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backend := rapid.SampledFrom([]Backend{Auto, VXLAN, Native}).Draw(t, "backend")
		var places [2]Self
		var leases []cluster.Lease
		for i := range places {
			name := fmt.Sprintf("node%d", i+1)
			places[i] = Self{Node: name, Backend: backend, VNI: 1, Port: 8472}
			addrs := drawAddresses.Draw(t, "addresses")
			for j, a := range addrs {
				// Equal addresses on two nodes have no way at all.
				b := a.AsSlice()
				b[len(b)-1] += byte(10 * i)
				a, _ = netip.AddrFromSlice(b)
				addrs[j] = a
				places[i].Underlay = append(places[i].Underlay, Underlay{
					Addr: netip.PrefixFrom(a, map[bool]int{true: 24, false: 48}[a.Is4()]), Dev: "uplink0", MTU: 1500,
				})
			}
			for _, subnet := range []string{"10.42.%d.0/24", "fd00:42:0:%d::/64"} {
				l := cluster.Lease{Subnet: netip.MustParsePrefix(fmt.Sprintf(subnet, i)), Node: name, Addresses: addrs}
				if backend != Native {
					l.VTEP = cluster.VTEP{MAC: cluster.VTEPMAC(name), VNI: 1, Port: 8472}
				}
				leases = append(leases, l)
			}
		}
		nodes := map[string]bool{"node1": true, "node2": true}
		way := func(self Self, to string, is4 bool) Reach {
			_, reach := Compute(self, nodes, leases)
			i := slices.IndexFunc(reach, func(r Reach) bool { return r.Node == to && r.Subnet.Addr().Is4() == is4 })
			return reach[i]
		}
		for _, is4 := range []bool{true, false} {
			there, back := way(places[0], "node2", is4), way(places[1], "node1", is4)
			if there.Way != back.Way || there.Via.Is4() != back.Via.Is4() || there.Dev != back.Dev {
				t.Fatalf("there %+v, back %+v", there, back)
			}
		}
	})
}

// TestOneFamilyAtATime: however the IPv6 leases of a dual-stack cluster change,
// while each node's addresses stay and the leases of IPv4 are older, no object
// of IPv4 is touched.
func TestOneFamilyAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, m, held := newWorld(), NewMap(), newObjects()
		at := map[string]string{
			"node1": "198.18.1.11,fd00:1::11", "node2": "198.18.1.12,fd00:1::12", "node3": "198.18.2.13,fd00:2::13",
		}
		for _, command := range []string{node1Dual, everybody,
			"lease 10.42.1.0/24 node1 at=" + at["node1"], "lease 10.42.2.0/24 node2 at=" + at["node2"], "lease 10.42.3.0/24 node3 at=" + at["node3"],
		} {
			w.run(t, m, command)
		}
		if _, err := fold(held, m.Updates()); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"lease": func(t *rapid.T) {
				node := rapid.SampledFrom([]string{"node1", "node2", "node3", "node4"}).Draw(t, "node")
				command := fmt.Sprintf("lease %s %s at=%s created=%d", drawSubnet6.Draw(t, "subnet"), node, cmp.Or(at[node], "fd00:9::9"), rapid.IntRange(0, 3).Draw(t, "created"))
				w.run(t, m, command)
			},
			"drop": func(t *rapid.T) { w.run(t, m, "drop "+drawSubnet6.Draw(t, "subnet").String()) },
			"": func(t *rapid.T) {
				u := m.Updates()
				if err := touchesIPv4(u); err != nil {
					t.Fatal(err)
				}
				if _, err := fold(held, u); err != nil {
					t.Fatal(err)
				}
				if err := w.check(m, held); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// touchesIPv4 finds what is of IPv4, or of both families: devices and FDB
// entries.
func touchesIPv4(u Updates) error {
	if len(u.Links) > 0 || len(u.FDB) > 0 {
		return fmt.Errorf("devices %v or FDB entries %v changed", u.Links, u.FDB)
	}
	for _, a := range u.Addresses {
		if a.Key.Addr.Is4() {
			return fmt.Errorf("address %v changed", a)
		}
	}
	for _, n := range u.Neighbours {
		if n.Key.Addr.Is4() {
			return fmt.Errorf("neighbour %v changed", n)
		}
	}
	for _, r := range u.Routes {
		if r.Key.Dst.Addr().Is4() {
			return fmt.Errorf("route %v changed", r)
		}
	}
	return nil
}
