// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
)

// Network is one that this node is a part of itself: addresses of it are
// reached by the device, and would not be any more if the node leased them.
type Network struct {
	Prefix netip.Prefix
	Dev    string
}

func (n Network) String() string { return fmt.Sprintf("%s (%s)", n.Prefix, n.Dev) }

// obstacle says what of the node itself forbids it to have the block, as it
// does in package topology; "" if nothing does.
func (d *decider) obstacle(block netip.Prefix) string {
	for _, n := range d.in.Networks {
		if n.Prefix.Overlaps(block) {
			return fmt.Sprintf("overlaps this node's network %s", n)
		}
	}
	for _, a := range d.in.Addresses {
		if block.Contains(a) {
			return fmt.Sprintf("contains this node's address %s", a)
		}
	}
	return ""
}

// rejection says why this node's lease must not be used; "" if it may. What is
// known to forbid it needs no verdict of others.
func (d *decider) rejection(l cluster.Lease) string {
	if reason := d.in.Rejected[l.Name()]; reason != "" {
		return reason
	}
	return d.obstacle(l.Subnet)
}

// nodeAddresses tells the addresses of all nodes and whose they are: as their
// objects say, and as their leases do. A block that contains one would take the
// way to that node, so that one of the two nodes' leases could not stand.
func (d *decider) nodeAddresses(yield func(netip.Addr, string) bool) {
	tell := func(addresses []netip.Addr, node string) bool {
		for _, a := range addresses {
			if !yield(a, node) {
				return false
			}
		}
		return true
	}
	if !tell(d.in.Addresses, d.in.Name) {
		return
	}
	for _, n := range d.in.Nodes {
		if !tell(n.Addresses, n.Name) {
			return
		}
	}
	for _, l := range d.in.Leases {
		if !tell(l.Addresses, l.Node) {
			return
		}
	}
}

// hasNode reports whether the block contains the address of a node.
func (d *decider) hasNode(block netip.Prefix) bool {
	for a := range d.nodeAddresses {
		if block.Contains(a) {
			return true
		}
	}
	return false
}

// avoided returns the blocks of a range that are not for pods because nodes are
// there, and the nodes' part in words; "": there are none.
func (d *decider) avoided(g grid) (blocks runs, because string) {
	for _, n := range d.in.Networks {
		if !g.cidr.Overlaps(n.Prefix) {
			continue
		}
		if blocks = g.add(blocks, n.Prefix); because == "" {
			because = fmt.Sprintf("this node's network %s", n)
		}
	}
	var lowest netip.Addr
	var of string
	for a, node := range d.nodeAddresses {
		if !g.cidr.Contains(a) {
			continue
		}
		blocks = g.add(blocks, netip.PrefixFrom(a, a.BitLen()))
		if c := a.Compare(lowest); !lowest.IsValid() || c < 0 || c == 0 && node < of {
			lowest, of = a, node
		}
	}
	if because == "" && lowest.IsValid() {
		because = fmt.Sprintf("the address %s of Node %s", lowest, of)
	}
	return blocks, because
}

// retained returns the rejected leases of the pool that are not in use and stay
// for now nevertheless.
func (d *decider) retained(h *held, p cluster.Pool) (leases []cluster.Lease) {
	for _, one := range h.rejected {
		q, ok := poolOf(d.pools, one.lease.Subnet)
		if ok && q.Name == p.Name && !one.used && d.eligible(one.lease.Subnet) {
			leases = append(leases, one.lease)
		}
	}
	return leases
}

// around returns another node's lease that contains an address of this node: if
// it stands, no lease of this node does that is younger.
func (d *decider) around() (around cluster.Lease, addr netip.Addr) {
	for _, l := range d.in.Leases {
		i := slices.IndexFunc(d.in.Addresses, l.Subnet.Contains)
		if l.Node != d.in.Name && i >= 0 && (!addr.IsValid() || l.Subnet.Compare(around.Subnet) < 0) {
			around, addr = l, d.in.Addresses[i]
		}
	}
	return around, addr
}

// futile says why no more blocks of the pool are claimed: as many as are enough
// to see that it is of no use have been; "" if they have not.
func (d *decider) futile(h *held, p cluster.Pool) string {
	leases := d.retained(h, p)
	if len(leases) < maxRejected {
		return ""
	}
	last := leases[len(leases)-1]
	text := fmt.Sprintf("IPPool %s: %d leases that this node has claimed are rejected (SubnetLease %s: %s); they are given back after a while, and others tried",
		p.Name, len(leases), last.Name(), d.rejection(last))
	if l, addr := d.around(); addr.IsValid() {
		text += fmt.Sprintf("; SubnetLease %s of Node %s contains this node's address %s: delete it if it is a mistake", l.Name(), l.Node, addr)
	}
	return text
}
