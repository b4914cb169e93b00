// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"slices"
)

// order is leases ascending by subnet. Prefixes either nest or are disjoint,
// so what overlaps lies together: a lease that contains others comes right
// before them.
type order []*tracked

func (o order) search(subnet netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(o, subnet, func(t *tracked, p netip.Prefix) int { return t.subnet.Compare(p) })
}

// overlap reports whether the leases at i and i+1 overlap. In an order in which
// no two neighbours overlap no two leases do.
func (o order) overlap(i int) bool {
	return i >= 0 && i+1 < len(o) && o[i].subnet.Overlaps(o[i+1].subnet)
}

// run returns how many leases from i on overlap the one at i, itself included.
func (o order) run(i int) int {
	n := 1
	for i+n < len(o) && o[i].subnet.Overlaps(o[i+n].subnet) {
		n++
	}
	return n
}

// rival returns, of the leases of an order without overlaps, the first that
// overlaps the subnet, and where the subnet's place is.
func (o order) rival(subnet netip.Prefix) (*tracked, int) {
	i, _ := o.search(subnet)
	switch {
	case i > 0 && o[i-1].subnet.Overlaps(subnet):
		return o[i-1], i
	case i < len(o) && o[i].subnet.Overlaps(subnet):
		return o[i], i
	}
	return nil, i
}
