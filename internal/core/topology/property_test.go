// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
)

var drawNode = rapid.Map(rapid.IntRange(1, 5), func(i int) string { return fmt.Sprintf("node%d", i) })

// Subnets of which many contain each other, overlap the underlay or are too
// small.
var drawSubnet = rapid.Custom(func(t *rapid.T) netip.Prefix {
	if rapid.IntRange(0, 19).Draw(t, "special") == 0 {
		return rapid.SampledFrom([]netip.Prefix{
			netip.MustParsePrefix("198.18.1.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
			netip.MustParsePrefix("fd00:1::/64"), netip.MustParsePrefix("10.42.0.0/31"),
		}).Draw(t, "subnet")
	}
	third := byte(rapid.IntRange(0, 3).Draw(t, "third"))
	if rapid.Bool().Draw(t, "IPv6") {
		bits := rapid.SampledFrom([]int{60, 62, 64, 64, 64, 66}).Draw(t, "bits")
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x42, 7: third}), bits).Masked()
	}
	bits := rapid.SampledFrom([]int{22, 23, 24, 24, 24, 25, 26}).Draw(t, "bits")
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, third, 0}), bits).Masked()
})

var drawUnderlay4 = rapid.Custom(func(t *rapid.T) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(rapid.IntRange(1, 2).Draw(t, "segment")), byte(rapid.IntRange(11, 14).Draw(t, "host"))})
})

var drawUnderlay6 = rapid.Custom(func(t *rapid.T) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: byte(rapid.IntRange(1, 2).Draw(t, "segment")), 15: byte(rapid.IntRange(0x11, 0x14).Draw(t, "host"))})
})

var drawAddresses = rapid.Custom(func(t *rapid.T) (addrs []netip.Addr) {
	if rapid.IntRange(0, 3).Draw(t, "has IPv4") > 0 {
		addrs = append(addrs, drawUnderlay4.Draw(t, "IPv4"))
	}
	if rapid.Bool().Draw(t, "has IPv6") {
		addrs = append(addrs, drawUnderlay6.Draw(t, "IPv6"))
	}
	return addrs
})

var drawLease = rapid.Custom(func(t *rapid.T) cluster.Lease {
	l := cluster.Lease{
		Subnet: drawSubnet.Draw(t, "subnet"), Node: drawNode.Draw(t, "node"),
		Created:   rapid.Int64Range(0, 3).Draw(t, "created"),
		Version:   rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"),
		Addresses: drawAddresses.Draw(t, "addresses"),
	}
	l.VTEP = cluster.VTEP{MAC: cluster.VTEPMAC(l.Node), VNI: 1, Port: 8472}
	switch rapid.IntRange(0, 11).Draw(t, "vtep") {
	case 0, 1:
		l.VTEP = cluster.VTEP{}
	case 2:
		l.VTEP.VNI = 2
	case 3:
		l.VTEP.Port = 4789
	case 4:
		l.VTEP.MAC = cluster.VTEPMAC("another")
	}
	return l
})

var drawSelf = rapid.Custom(func(t *rapid.T) Self {
	s := Self{
		Node:    rapid.SampledFrom([]string{"node1", "node1", "node1", "node2"}).Draw(t, "node"),
		Backend: rapid.SampledFrom([]Backend{Auto, Auto, VXLAN, Native}).Draw(t, "backend"),
		VNI:     rapid.SampledFrom([]uint32{1, 1, 1, 2}).Draw(t, "vni"), Port: 8472,
		MTU:      rapid.SampledFrom([]int{0, 0, 1400}).Draw(t, "mtu"),
		Checksum: rapid.Bool().Draw(t, "checksum"),
	}
	dev := rapid.SampledFrom([]string{"uplink0", "uplink1"})
	mtu := rapid.SampledFrom([]int{1300, 1500, 9000})
	for _, a := range drawAddresses.Draw(t, "addresses") {
		bits := rapid.SampledFrom([]int{24, 24, 32}).Draw(t, "bits")
		if a.Is6() {
			bits *= 2 // segments differ in the fourth octet
		}
		s.Underlay = append(s.Underlay, Underlay{Addr: netip.PrefixFrom(a, bits), Dev: dev.Draw(t, "dev"), MTU: mtu.Draw(t, "MTU")})
	}
	return s
})

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
				if n := countOverlaps(m); m.overlaps != n {
					t.Fatalf("%d neighbours in order overlap, counted as %d", n, m.overlaps)
				}
				if again := m.Updates(); fmt.Sprint(again) != fmt.Sprint(Updates{}) {
					t.Fatalf("Updates without a change: %+v", again)
				}
			},
		})
	})
}

func countOverlaps(m *Map) (n int) {
	for i := range m.order {
		n += count(m.order.overlap(i))
	}
	return n
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
		if len(m.leases)+len(m.members)+len(m.order)+m.overlaps+m.tunnels[ipv4]+m.tunnels[ipv6] != 0 {
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

// TestAcceptedLeasesAreDisjoint: no destination is routed twice.
func TestAcceptedLeasesAreDisjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.SliceOfDistinct(drawLease, cluster.Lease.Name).Draw(t, "leases")
		nodes := map[string]bool{"node1": true, "node2": true, "node3": true, "node4": true}
		objects, _ := Compute(drawSelf.Draw(t, "self"), nodes, leases)
		routes := slices.SortedFunc(maps.Keys(objects.Routes), RouteKey.Compare)
		for i := range routes[:max(len(routes)-1, 0)] {
			if routes[i].Dst.Overlaps(routes[i+1].Dst) {
				t.Fatalf("routes %s and %s overlap", routes[i].Dst, routes[i+1].Dst)
			}
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
// while each node's addresses stay, no object of IPv4 is touched.
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

var drawSubnet6 = drawSubnet.Filter(func(p netip.Prefix) bool { return p.Addr().Is6() })

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
