// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/ipam"
)

// exempt reports whether the node may use the block without having a lease that
// is its own doing.
func (n *node) exempt(block netip.Prefix) bool {
	return n.stranded[block] || n.w.garbage[cluster.LeaseName(block)]
}

// check ends an event: a node died in it, or not.
func (w *World) check(n *node) {
	if n.removed {
		return
	}
	n.endure()
	n.check()
}

// check holds the node to the rule that who gives addresses from a block, or
// has pods with addresses of it, has its lease, and therefore nobody else.
func (n *node) check() {
	w := n.w
	blocks := n.ipam.blocks()
	for block := range n.stranded {
		l, there := w.registry.Lease(cluster.LeaseName(block))
		if there && l.Node == n.name || !slices.Contains(blocks, block) && !n.awaits(leaseKey(block)) {
			delete(n.stranded, block)
		}
	}
	for _, block := range n.uses {
		n.yield(block)
	}
	n.uses = n.uses[:0]
	for _, block := range blocks {
		if n.exempt(block) {
			continue
		}
		if other := w.used[block]; other != nil && other != n {
			w.violated("%s and %s use %s", n.name, other.name, block)
		}
		w.used[block] = n
		n.uses = append(n.uses, block)
		w.checkHolder(block, cluster.LeaseName(block))
	}
}

// yield ends that the node counts as who uses the block.
func (n *node) yield(block netip.Prefix) {
	if n.w.used[block] == n {
		delete(n.w.used, block)
	}
}

// checkHolder holds who uses a block to having its lease.
func (w *World) checkHolder(block netip.Prefix, name string) {
	n := w.used[block]
	if n == nil || n.exempt(block) {
		return
	}
	if l, there := w.registry.Lease(name); !there || l.Node != n.name {
		w.violated("%s uses %s, whose lease is of %q", n.name, block, l.Node)
	}
}

// checkPod holds IPAM to giving nobody what somebody has.
func (w *World) checkPod(n *node, pod string, g ipam.Allocation) {
	if w.kept(g.Addr) {
		w.violated("pod %s has %s, which another keeps", pod, g.Addr)
	}
	if n.exempt(g.Range.Subnet) {
		return
	}
	if other, taken := w.pods[g.Addr]; taken {
		w.violated("pods %s and %s both have %s", pod, other, g.Addr)
	}
	w.pods[g.Addr] = pod
}

// checkClaim holds a node to claiming nothing that is reserved, as far as it
// was told.
func (w *World) checkClaim(n *node, l cluster.Lease) {
	for _, p := range n.pools {
		for _, r := range p.Reserved {
			if r.Bits() <= l.Subnet.Bits() && r.Overlaps(l.Subnet) {
				w.violated("%s claims %s, which IPPool %s reserves", n.name, l.Subnet, p.Name)
			}
		}
	}
}

// checkRelease holds a node to giving back only what is out of use.
func (w *World) checkRelease(n *node, l cluster.Lease) {
	switch {
	case l.Node != n.name:
		w.violated("%s gives back %s, which is of %s", n.name, l.Name(), l.Node)
	case slices.Contains(n.ipam.pool.Subnets(), l.Subnet):
		w.violated("%s gives back %s while it gives addresses from it", n.name, l.Name())
	case n.ipam.used(l.Subnet) && !slices.ContainsFunc(n.ipam.blocks(), func(b netip.Prefix) bool {
		return b != l.Subnet && b.Overlaps(l.Subnet) // its pods' addresses are of this one
	}):
		w.violated("%s gives back %s while pods have addresses of it", n.name, l.Name())
	}
}

// checkOperation holds a node to writing nothing before it has seen everything,
// and to deleting nothing but what was its own.
func (n *node) checkOperation(kind, op string, own, stranger bool) {
	switch {
	case !own && n.feed.missing > 0:
		n.w.violated("%s: %s, of %s, with %d objects of the first view missing", n.name, op, kind, n.feed.missing)
	case stranger:
		n.w.violated("%s: %s, of %s, which was never its own", n.name, op, kind)
	}
}
