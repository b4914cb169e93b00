// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
)

// member is one of two nodes on a segment, each with a pod.
type member struct {
	*world
	number byte
	pod    *pod
}

func (m member) mac() attach.MAC { return attach.MAC{0x9a, 0, 0, 0, 0, m.number} }

// underlay is the node's address between the nodes.
func (m member) underlay(ipv6 bool) netip.Addr {
	if ipv6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%d", m.number))
	}
	return netip.AddrFrom4([4]byte{198, 18, 1, m.number})
}

// subnets are the node's leases.
func (m member) subnets() []netip.Prefix {
	return prefixes(fmt.Sprintf("10.42.%d.0/24", m.number), fmt.Sprintf("fd00:42:%d::/64", m.number))
}

// segment makes two nodes on one segment, with everything but the way from one
// to the other.
func segment(t *testing.T) [2]member {
	nstest.Need(t, "vxlan", "ipv6")
	nodes := [2]member{{world: newWorld(t), number: 1}, {world: newWorld(t), number: 2}}
	fd := nodes[1].host.FD()
	nodes[0].host.Do(func() {
		uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "uplink", PeerNamespace: netlink.NsFd(fd)}
		if err := netlink.LinkAdd(uplink); err != nil {
			t.Fatal(err)
		}
	})
	for i := range nodes {
		nodes[i].configureUplink()
	}
	for i := range nodes {
		n := &nodes[i]
		// The end that came up first learns of its carrier late, unless asked.
		n.host.Do(func() { _, _ = netlink.LinkByName("uplink") })
		sysctls := n.h.Sysctls()
		apply(t, sysctls, delta.Add, kernel.ForwardingIPv4, "1")
		apply(t, sysctls, delta.Add, kernel.ForwardingIPv6, "1")
		n.pod = n.newPod(fmt.Sprintf("10.42.%d.7", n.number), fmt.Sprintf("fd00:42:%d::7", n.number))
		n.pod.plan.MTU = 1400
		n.attach(n.pod)
		for _, s := range n.subnets() {
			apply(t, n.h.FabricRoutes(), delta.Add, topology.RouteKey{Dst: s}, topology.Route{})
		}
	}
	return nodes
}

func (m member) configureUplink() {
	m.Helper()
	m.host.Do(func() {
		uplink, err := netlink.LinkByName("uplink")
		if err != nil {
			m.Fatal(err)
		}
		configure(m, uplink, m.underlay(false).String()+"/24", m.underlay(true).String()+"/64")
	})
}

// overlay leads from one node to another by VXLAN.
func (m member) overlay(peer member, ipv6, checksum bool) {
	m.Helper()
	dev := topology.VXLANDevice4
	if ipv6 {
		dev = topology.VXLANDevice6
	}
	apply(m, m.h.VXLANLinks(instance), delta.Add, topology.LinkKey(dev), topology.Link{
		VNI: 7, Port: 8472, Local: m.underlay(ipv6), MAC: m.mac(), MTU: 1430, Checksum: checksum,
	})
	apply(m, m.h.FDB(), delta.Add, topology.FDBKey{Dev: dev, MAC: peer.mac()}, topology.FDB{Dst: peer.underlay(ipv6)})
	for i, s := range peer.subnets() {
		own, gateway := m.subnets()[i].Addr().Next(), s.Addr().Next()
		apply(m, m.h.FabricAddresses(), delta.Add, topology.AddressKey{Dev: dev, Addr: own}, topology.Address{})
		apply(m, m.h.FabricNeighbours(), delta.Add, topology.NeighbourKey{Dev: dev, Addr: gateway}, topology.Neighbour{MAC: peer.mac()})
		apply(m, m.h.FabricRoutes(), delta.Change, topology.RouteKey{Dst: s}, topology.Route{Gateway: gateway, Dev: dev})
	}
}

// native leads from one node to another by routes; both families over IPv6 if
// so wanted.
func (m member) native(peer member, ipv6 bool) {
	m.Helper()
	for _, s := range peer.subnets() {
		gateway := peer.underlay(ipv6 || s.Addr().Is6())
		apply(m, m.h.FabricRoutes(), delta.Change, topology.RouteKey{Dst: s}, topology.Route{Gateway: gateway, Dev: "uplink"})
	}
}

// reach fails unless the pods speak to each other, each by its own address.
func reach(t *testing.T, from, to member) {
	t.Helper()
	for _, like := range []netip.Addr{gateway4, gateway6} {
		src, dst := from.pod.addr(like), to.pod.addr(like)
		if err := ping(t, from.pod.NS, dst); err != nil {
			t.Errorf("ping %s: %v", dst, err)
		}
		if seen, err := exchange(t, from.pod.NS, to.pod.NS, dst); err != nil || seen != src {
			t.Errorf("UDP to %s: seen from %s, error %v, want %s", dst, seen, err, src)
		}
		if err := stream(t, from.pod.NS, to.pod.NS, dst); err != nil {
			t.Errorf("TCP to %s: %v", dst, err)
		}
		// The node itself, too: it has an address of its lease to send from.
		if err := ping(t, from.host, dst); err != nil {
			t.Errorf("ping %s from the node: %v", dst, err)
		}
	}
}

func TestPacketsBetweenNodes(t *testing.T) {
	for name, way := range map[string]func(from, to member){
		"vxlan over ipv4":                   func(from, to member) { from.overlay(to, false, true) },
		"vxlan over ipv6":                   func(from, to member) { from.overlay(to, true, true) },
		"vxlan over ipv4, without checksum": func(from, to member) { from.overlay(to, false, false) },
		"vxlan over ipv6, without checksum": func(from, to member) { from.overlay(to, true, false) },
		"native":                            func(from, to member) { from.native(to, false) },
		"native over ipv6":                  func(from, to member) { from.native(to, true) },
	} {
		t.Run(name, func(t *testing.T) {
			nodes := segment(t)
			// Nodes that route natively answer each other by the way of the pods.
			for _, n := range nodes {
				for _, s := range n.subnets() {
					a := netip.PrefixFrom(s.Addr().Next(), s.Addr().BitLen())
					apply(t, n.h.FabricRoutes(), delta.Add, topology.RouteKey{Dst: a, Local: true}, topology.Route{})
				}
			}
			way(nodes[0], nodes[1])
			way(nodes[1], nodes[0])
			reach(t, nodes[0], nodes[1])
			reach(t, nodes[1], nodes[0])
		})
	}
}

// TestPacketsAcrossChanges: from one way to another and back, with what is there
// changed in place.
func TestPacketsAcrossChanges(t *testing.T) {
	nodes := segment(t)
	for _, way := range []func(from, to member){
		func(from, to member) { from.native(to, false) },
		func(from, to member) { from.overlay(to, false, true) },
		func(from, to member) { from.overlay(to, true, true) },
		func(from, to member) { from.native(to, true) },
		func(from, to member) { from.overlay(to, false, false) },
	} {
		way(nodes[0], nodes[1])
		way(nodes[1], nodes[0])
		reach(t, nodes[0], nodes[1])
	}
	// Another outer address, in use at once.
	for i := range nodes {
		n := &nodes[i]
		n.number += 10
		n.ip("addr", "add", n.underlay(false).String()+"/24", "dev", "uplink")
		n.number -= 10
	}
	for i, n := range nodes {
		peer := nodes[1-i]
		link := topology.Link{VNI: 7, Port: 8472, MAC: n.mac(), MTU: 1430}
		n.number, peer.number = n.number+10, peer.number+10
		link.Local = n.underlay(false)
		apply(t, n.h.VXLANLinks(instance), delta.Change, topology.VXLANDevice4, link)
		apply(t, n.h.FDB(), delta.Change, topology.FDBKey{Dev: topology.VXLANDevice4, MAC: nodes[1-i].mac()}, topology.FDB{Dst: peer.underlay(false)})
		old := member{number: nodes[i].number}
		n.ip("addr", "del", old.underlay(false).String()+"/24", "dev", "uplink")
		n.ip("addr", "add", n.underlay(false).String()+"/24", "dev", "uplink")
	}
	reach(t, nodes[0], nodes[1])
}
