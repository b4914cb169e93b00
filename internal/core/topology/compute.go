// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"
	"strings"

	"weft.dev/weft/internal/core/cluster"
)

// Compute derives from scratch what this node's kernel must hold, and how each
// lease is reached, by name. nodes are the known ones. No two leases have the
// same subnet.
//
// It is the definition, written to be read: it compares each lease with all
// older ones.
func Compute(self Self, nodes map[string]bool, leases []cluster.Lease) (Objects, []Reach) {
	p := newPlace(self)
	entries := make([]*entry, 0, len(leases))
	for _, l := range leases {
		e := newEntry(l.Name(), l)
		entries = append(entries, &e)
	}
	slices.SortFunc(entries, older)

	o := Objects{
		Neighbours: map[NeighbourKey]Wanted[Neighbour]{},
		FDB:        map[FDBKey]Wanted[FDB]{},
		Routes:     map[RouteKey]Wanted[Route]{},
	}
	var (
		reach     []Reach
		standing  []*entry // leases that hold what they claim
		ownBlocks []*entry
		used      [len(families)]bool
	)
	for _, e := range entries {
		rival := firstRival(e, standing)
		if rival == nil && e.flaw(nodes[e.node] || e.node == p.Node) == "" {
			standing = append(standing, e)
		}
		v := p.judge(e, nodes[e.node], rival)
		reach = append(reach, p.reach(e, v))

		fp := p.footprint(e, v)
		if key, route, ok := fp.routing(); ok {
			o.Routes[key] = route
		}
		if key, neighbour, ok := fp.neighbour(); ok {
			o.Neighbours[key] = neighbour
			// The youngest lease of a node comes last, and decides.
			o.FDB[FDBKey{Dev: key.Dev, MAC: fp.mac}] = Wanted[FDB]{Value: FDB{Dst: e.addrs[v.over]}, Origin: nodeOrigin + e.node}
			used[v.over] = true
		}
		if fp.ownBlock() {
			ownBlocks = append(ownBlocks, e)
		}
	}
	o.Links, o.Addresses = p.own(p.devices(used), ownBlocks)
	slices.SortFunc(reach, func(a, b Reach) int { return strings.Compare(a.Lease, b.Lease) })
	return o, reach
}

// firstRival returns, of the entries that conflict with e, the first by subnet.
func firstRival(e *entry, others []*entry) (first *entry) {
	for _, other := range others {
		if e.conflict(other) != "" && (first == nil || other.subnet.Compare(first.subnet) < 0) {
			first = other
		}
	}
	return first
}
