// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft.dev/weft/internal/lab"
)

// What VXLAN takes of a packet, by the family of the underlay.
const (
	takenBy4 = 50
	takenBy6 = 70
)

// never are the destinations that nobody masquerades to.
var never = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// set is a set of lines.
type set map[string]bool

func (s set) add(format string, args ...any) { s[fmt.Sprintf(format, args...)] = true }

// diff says what is missing of want and what is too much.
func (s set) diff(want set) (lines []string) {
	for line := range want {
		if !s[line] {
			lines = append(lines, "missing: "+line)
		}
	}
	for line := range s {
		if !want[line] {
			lines = append(lines, "too much: "+line)
		}
	}
	slices.Sort(lines)
	return lines
}

// addrOf returns a node's address of a family.
func addrOf(n lab.Node, ipv4 bool) (netip.Addr, bool) {
	for _, p := range n.Addrs {
		if p.Addr().Is4() == ipv4 {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}

func bits(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// want returns what a node's kernel must hold of Weft's.
func (m *mesh) want(node string, b believed) set {
	w := set{}
	self := m.nodes[node]
	used := map[string]bool{}
	first, _ := m.device(self, self)
	used[first] = m.backend != "native"
	for _, l := range b.leases {
		if l.Spec.Node == node {
			w.add("route unreachable %s", l.Spec.Subnet)
			continue
		}
		if peer, known := m.nodes[l.Spec.Node]; known {
			used[m.wantPeer(w, self, peer, l)] = true
		}
	}
	delete(used, "")
	for device, is := range used {
		if is {
			m.wantDevice(w, device, self, b.leasesOf(node))
		}
	}
	for _, p := range m.podsOn(node) {
		w.add("interface of pod %s mtu %d", p.Name, m.wantPodMTU(self))
		for _, a := range p.Addresses {
			w.add("route %s dev pod %s", bits(a.Addr()), p.Name)
		}
	}
	for _, l := range b.leasesOf(node) {
		w.add("route local %s", bits(l.Spec.Subnet.Addr().Next()))
		w.add("forwarding %s", family(l.Spec.Subnet.Addr()))
	}
	m.wantMasquerade(w, node, b)
	return w
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// wantPeer adds what leads to a lease of another node, and returns the VXLAN
// device that it takes.
func (m *mesh) wantPeer(w set, self, peer lab.Node, l leaseManifest) (device string) {
	subnet := l.Spec.Subnet
	if via, ok := m.neighbour(self, peer, subnet.Addr().Is4()); ok && m.backend != "vxlan" {
		w.add("route %s via %s dev %s onlink", subnet, via, lab.UplinkName)
		return ""
	}
	if m.backend == "native" {
		return ""
	}
	device, ipv4 := m.device(self, peer)
	to, _ := addrOf(peer, ipv4)
	gateway := subnet.Addr().Next()
	w.add("route %s via %s dev %s onlink", subnet, gateway, device)
	w.add("neighbour %s lladdr %s dev %s", gateway, l.mac(), device)
	w.add("fdb %s dst %s dev %s", l.mac(), to, device)
	return device
}

// neighbour returns the address by which a peer on the same segment is reached
// for a subnet of a family: IPv4 goes by IPv6 only where there is no IPv4.
func (m *mesh) neighbour(self, peer lab.Node, ipv4 bool) (netip.Addr, bool) {
	if self.Segment != peer.Segment {
		return netip.Addr{}, false
	}
	if via, ok := addrOf(peer, ipv4); ok || !ipv4 {
		return via, ok
	}
	return addrOf(peer, false)
}

// device returns the VXLAN device between two nodes: IPv4 where both have it.
func (m *mesh) device(self, peer lab.Node) (device string, ipv4 bool) {
	_, mine := addrOf(self, true)
	_, theirs := addrOf(peer, true)
	if mine && theirs {
		return "weft-vxlan", true
	}
	return "weft-vxlan6", false
}

func (m *mesh) wantDevice(w set, device string, self lab.Node, own []leaseManifest) {
	ipv4, taken := device == "weft-vxlan", takenBy4
	if !ipv4 {
		taken = takenBy6
	}
	local, _ := addrOf(self, ipv4)
	for _, l := range own {
		w.add("address %s dev %s", bits(l.Spec.Subnet.Addr().Next()), device)
	}
	if len(own) > 0 {
		w.add("link %s vni 119 port 4789 local %s mac %s mtu %d up", device, local, own[0].mac(), m.mtu-taken)
	}
}

// wantPodMTU is that of both ends of a pod's interface.
func (m *mesh) wantPodMTU(self lab.Node) int {
	_, ipv4 := addrOf(self, true)
	switch {
	case m.podMTU != 0:
		return m.podMTU
	case m.backend == "native":
		return m.mtu
	case ipv4:
		return m.mtu - takenBy4
	}
	return m.mtu - takenBy6
}

// wantMasquerade adds what comes from the node's blocks, but for those of a
// pool that says no, and leaves the pools.
func (m *mesh) wantMasquerade(w set, node string, b believed) {
	var direct, outside []netip.Prefix
	plain := map[string]bool{}
	for _, p := range b.pools {
		direct = append(direct, p.cidrs()...)
		plain[p.Metadata.Name] = !p.masquerades()
	}
	inPool := func(s netip.Prefix) bool {
		return slices.ContainsFunc(direct, func(p netip.Prefix) bool { return p.Overlaps(s) })
	}
	for _, l := range b.leases {
		if l.Spec.Node == node || !inPool(l.Spec.Subnet) {
			outside = append(outside, l.Spec.Subnet)
		}
	}
	direct = slices.Concat(direct, outside, m.exclude, never)
	for _, ipv4 := range []bool{true, false} {
		var sources []netip.Prefix
		for _, l := range b.leasesOf(node) {
			if l.Spec.Subnet.Addr().Is4() == ipv4 && !plain[l.Spec.Pool] {
				sources = append(sources, l.Spec.Subnet)
			}
		}
		if len(sources) > 0 {
			w.add("masquerade from %s, but not to %s", ranges(sources, ipv4), ranges(direct, ipv4))
		}
	}
}

// ranges writes the union of the prefixes of a family as first and last
// addresses.
func ranges(prefixes []netip.Prefix, ipv4 bool) string {
	var list []string
	var end netip.Addr // first address that the last range of the list does not have
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	for _, p := range prefixes {
		if p.Addr().Is4() != ipv4 {
			continue
		}
		last := lastOf(p)
		switch {
		case len(list) > 0 && (!end.IsValid() || last.Less(end)):
			continue // inside
		case len(list) > 0 && !end.Less(p.Addr()):
			begin, _, _ := strings.Cut(list[len(list)-1], "-")
			list[len(list)-1] = begin + "-" + last.String()
		default:
			list = append(list, p.Addr().String()+"-"+last.String())
		}
		end = last.Next()
	}
	return strings.Join(list, " ")
}

func lastOf(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(raw); i++ {
		raw[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(raw)
	return a
}
