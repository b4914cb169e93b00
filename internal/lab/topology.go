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
// address decided. A node's place is a pure function of its number, its segment
// and the lab's family, so nodes come and go without any other being changed.
//
// One namespace, outside, is both the router between the segments and the host
// that stands for the rest of the world. Each segment is a bridge in it; a
// node hangs on its segment by a veth pair. The outside has no route to any
// pod subnet, so an answer comes back only if the node masqueraded.
type Topology struct {
	Outside  []netip.Prefix // addresses of the outside host, full length
	Segments []Segment
	Nodes    []Node // by number
}

// Segment is one layer-2 network, a bridge in the outside namespace.
type Segment struct {
	Name     string         // of the bridge
	Gateways []netip.Prefix // the router's addresses on it
}

// Node is one node's place in the underlay.
type Node struct {
	Number   int            `json:"number"`
	Name     string         `json:"name"`      // of the namespace, and of the port in the outside namespace
	Segment  string         `json:"segment"`   // name of its segment
	Addrs    []netip.Prefix `json:"addresses"` // of the uplink
	Gateways []netip.Addr   `json:"gateways"`  // default routes, one per family
}

// NewTopology lays out nodes 1 to nodes, at most MaxNodes, over the segments
// in turn.
func NewTopology(f Family, nodes, segments int) Topology {
	t := Topology{Outside: inFamily(f, []netip.Prefix{
		netip.PrefixFrom(outside4.Addr().Next(), 32),
		netip.PrefixFrom(outside6.Addr().Next(), 128),
	})}
	for s := 1; s <= segments; s++ {
		t.Segments = append(t.Segments, Segment{Name: segmentName(s), Gateways: underlayAddrs(f, s, 1)})
	}
	for n := 1; n <= nodes; n++ {
		t.Nodes = append(t.Nodes, placeNode(f, n, inTurn(n, segments)))
	}
	return t
}

// inTurn returns the segment of a node that was not told one.
func inTurn(node, segments int) int { return (node-1)%segments + 1 }

func segmentName(segment int) string { return fmt.Sprintf("segment%d", segment) }

func placeNode(f Family, number, segment int) Node {
	n := Node{
		Number:  number,
		Name:    fmt.Sprintf("node%d", number),
		Segment: segmentName(segment),
		Addrs:   underlayAddrs(f, segment, firstNodeHost+number),
	}
	for _, gw := range underlayAddrs(f, segment, 1) {
		n.Gateways = append(n.Gateways, gw.Addr())
	}
	return n
}

// underlayAddrs returns one host's addresses on a segment: a /24 and a /64 out
// of the underlay, with the numbers of segment and host in both written alike.
func underlayAddrs(f Family, segment, host int) []netip.Prefix {
	a4 := underlay4.Addr().As4()
	a4[2], a4[3] = byte(segment), byte(host)
	a6 := underlay6.Addr().As16()
	binary.BigEndian.PutUint16(a6[6:], digits(segment))
	binary.BigEndian.PutUint16(a6[14:], digits(host))
	return inFamily(f, []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4(a4), 24),
		netip.PrefixFrom(netip.AddrFrom16(a6), 64),
	})
}

func inFamily(f Family, all []netip.Prefix) []netip.Prefix {
	var those []netip.Prefix
	for _, p := range all {
		if f.has(p.Addr()) {
			those = append(those, p)
		}
	}
	return those
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

// Node returns the node of that name; "" means the first.
func (t Topology) Node(name string) (Node, error) {
	for _, n := range t.Nodes {
		if name == "" || n.Name == name {
			return n, nil
		}
	}
	return Node{}, fmt.Errorf("node %q: the lab has no node of this name", name)
}

// freeNumber returns the least number that no node has.
func (t Topology) freeNumber() int {
	taken := map[int]bool{}
	for _, n := range t.Nodes {
		taken[n.Number] = true
	}
	number := 1
	for taken[number] {
		number++
	}
	return number
}
