// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// The addresses outside the pods. The underlay takes the range for network
// tests (RFC 2544), the outside host a documentation range (RFC 5737), IPv6
// both from the documentation prefix (RFC 3849): none of them is ever met on a
// network that a machine is really connected to.
var (
	underlay4 = netip.MustParsePrefix("198.18.0.0/15")
	underlay6 = netip.MustParsePrefix("2001:db8:18::/48")
	outside4  = netip.MustParsePrefix("203.0.113.0/24")
	outside6  = netip.MustParsePrefix("2001:db8:113::/48")
)

// OutsideName names the namespace that plays the world outside the nodes.
const OutsideName = "outside"

// UplinkName is the name of each node's interface to its segment.
const UplinkName = "uplink0"

// firstNodeHost is the host number of node1 on its segment: the router has 1,
// and a gap tells the two apart at a glance.
const firstNodeHost = 10

// Topology is the part of a lab that lies below the pods, with every name and
// address decided. It is a pure function of the number of nodes and segments.
//
// One namespace, outside, is both the router between the segments and the host
// that stands for the rest of the world. Each segment is a bridge in it; a
// node hangs on its segment by a veth pair. The outside has no route to any
// pod subnet, so an answer comes back only if the node masqueraded.
type Topology struct {
	Outside  []netip.Prefix // addresses of the outside host, full length
	Segments []Segment
	Nodes    []Node
}

// Segment is one layer-2 network, a bridge in the outside namespace.
type Segment struct {
	Name     string         // of the bridge
	Gateways []netip.Prefix // the router's addresses on it
}

// Node is one node's place in the underlay.
type Node struct {
	Name     string         // of the namespace, and of the port in the outside namespace
	Segment  string         // name of its segment
	Addrs    []netip.Prefix // of the uplink
	Gateways []netip.Addr   // default routes, one per family
}

// NewTopology lays out nodes 1 to nodes over the segments in turn. At most 200
// nodes and 200 segments fit the underlay's addresses.
func NewTopology(nodes, segments int) (Topology, error) {
	if nodes < 1 || nodes > 200 || segments < 1 || segments > nodes {
		return Topology{}, fmt.Errorf("lay out %d nodes on %d segments: want 1 to 200 nodes and 1 to as many segments", nodes, segments)
	}
	t := Topology{Outside: []netip.Prefix{
		netip.PrefixFrom(outside4.Addr().Next(), 32),
		netip.PrefixFrom(outside6.Addr().Next(), 128),
	}}
	for s := 1; s <= segments; s++ {
		t.Segments = append(t.Segments, Segment{
			Name:     fmt.Sprintf("segment%d", s),
			Gateways: underlayAddrs(s, 1),
		})
	}
	for n := 1; n <= nodes; n++ {
		seg := (n-1)%segments + 1
		node := Node{
			Name:    fmt.Sprintf("node%d", n),
			Segment: fmt.Sprintf("segment%d", seg),
			Addrs:   underlayAddrs(seg, firstNodeHost+n),
		}
		for _, gw := range underlayAddrs(seg, 1) {
			node.Gateways = append(node.Gateways, gw.Addr())
		}
		t.Nodes = append(t.Nodes, node)
	}
	return t, nil
}

// underlayAddrs returns one host's addresses on a segment: a /24 and a /64 out
// of the underlay, with the numbers of segment and host in both written alike.
func underlayAddrs(segment, host int) []netip.Prefix {
	a4 := underlay4.Addr().As4()
	a4[2], a4[3] = byte(segment), byte(host)
	a6 := underlay6.Addr().As16()
	binary.BigEndian.PutUint16(a6[6:], digits(segment))
	binary.BigEndian.PutUint16(a6[14:], digits(host))
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4(a4), 24),
		netip.PrefixFrom(netip.AddrFrom16(a6), 64),
	}
}

// digits returns the number whose hexadecimal digits are the decimal ones of n,
// 0 to 9999: host 11 is ::11 to the reader.
func digits(n int) uint16 {
	d := 0
	for shift := 0; n > 0; shift += 4 {
		d |= n % 10 << shift
		n /= 10
	}
	return uint16(d)
}

// Machines returns the names of all namespaces of the topology, the outside
// first.
func (t Topology) Machines() []string {
	names := []string{OutsideName}
	for _, n := range t.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// Node returns the node of that name; "" means the first.
func (t Topology) Node(name string) (Node, error) {
	for _, n := range t.Nodes {
		if name == "" || n.Name == name {
			return n, nil
		}
	}
	return Node{}, fmt.Errorf("node %q: the lab has no node of this name", name)
}
