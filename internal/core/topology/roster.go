// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"slices"
)

// roster is leases in the orders in which those that conflict are found by
// binary search.
type roster struct {
	// Prefixes either nest or are disjoint, so what overlaps lies together: a
	// lease that contains others comes right before them.
	bySubnet []*tracked
	// byAddr has the leases with a node address, by it and then by subnet.
	byAddr [len(families)][]*tracked
}

func (r *roster) insert(t *tracked) {
	i, _ := r.search(t.subnet)
	r.bySubnet = slices.Insert(r.bySubnet, i, t)
	for _, f := range families {
		if t.addrs[f].IsValid() {
			i, _ := r.searchAddr(f, t.addrs[f], t.subnet)
			r.byAddr[f] = slices.Insert(r.byAddr[f], i, t)
		}
	}
}

// remove undoes insert.
func (r *roster) remove(t *tracked) {
	i, _ := r.search(t.subnet)
	r.bySubnet = slices.Delete(r.bySubnet, i, i+1)
	for _, f := range families {
		if t.addrs[f].IsValid() {
			i, _ := r.searchAddr(f, t.addrs[f], t.subnet)
			r.byAddr[f] = slices.Delete(r.byAddr[f], i, i+1)
		}
	}
}

// rival returns, of the leases of a roster in which none conflict, the first by
// subnet that conflicts with e, which is not among them.
func (r *roster) rival(e *entry) (first *tracked) {
	consider := func(t *tracked) {
		if t != nil && (first == nil || t.subnet.Compare(first.subnet) < 0) {
			first = t
		}
	}
	consider(r.overlapping(e.subnet))
	for _, a := range e.addrs {
		if a.IsValid() {
			consider(r.overlapping(netip.PrefixFrom(a, a.BitLen())))
		}
	}
	f := familyOf(e.subnet.Addr())
	i, _ := r.searchAddr(f, e.subnet.Addr(), netip.Prefix{})
	for _, t := range r.byAddr[f][i:] {
		if !e.subnet.Contains(t.addrs[f]) {
			break
		}
		consider(t)
	}
	return first
}

// overlapping returns, of the leases of a roster in which none overlap, the
// first whose subnet overlaps the prefix.
func (r *roster) overlapping(p netip.Prefix) *tracked {
	i, _ := r.search(p)
	switch {
	case i > 0 && r.bySubnet[i-1].subnet.Overlaps(p):
		return r.bySubnet[i-1]
	case i < len(r.bySubnet) && r.bySubnet[i].subnet.Overlaps(p):
		return r.bySubnet[i]
	}
	return nil
}

func (r *roster) search(subnet netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(r.bySubnet, subnet, func(t *tracked, p netip.Prefix) int { return t.subnet.Compare(p) })
}

func (r *roster) searchAddr(f family, a netip.Addr, subnet netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(r.byAddr[f], a, func(t *tracked, a netip.Addr) int {
		if c := t.addrs[f].Compare(a); c != 0 {
			return c
		}
		return t.subnet.Compare(subnet)
	})
}
