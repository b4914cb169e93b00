// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"slices"
)

// roster is leases in the orders in which those that conflict are found by
// binary search.
type roster struct {
	// blocks and pods are the leases of blocks, and those of pods, by subnet.
	// Prefixes either nest or are disjoint, so what overlaps lies together: a
	// lease that contains others comes right before them.
	blocks, pods []*tracked
	// byAddr has the leases with a node address, by it and then by subnet.
	byAddr [len(families)][]*tracked
}

func (r *roster) insert(t *tracked) {
	list := r.kind(t.ofPod)
	i, _ := search(*list, t.subnet)
	*list = slices.Insert(*list, i, t)
	for _, f := range families {
		if t.addrs[f].IsValid() {
			i, _ := r.searchAddr(f, t.addrs[f], t.subnet)
			r.byAddr[f] = slices.Insert(r.byAddr[f], i, t)
		}
	}
}

// kind returns the leases of pods, or those of blocks.
func (r *roster) kind(ofPod bool) *[]*tracked {
	if ofPod {
		return &r.pods
	}
	return &r.blocks
}

// all tells all leases, in no order.
func (r *roster) all(yield func(*tracked) bool) {
	for _, list := range [][]*tracked{r.blocks, r.pods} {
		for _, t := range list {
			if !yield(t) {
				return
			}
		}
	}
}

func (r *roster) len() int { return len(r.blocks) + len(r.pods) }

// remove undoes insert.
func (r *roster) remove(t *tracked) {
	list := r.kind(t.ofPod)
	i, _ := search(*list, t.subnet)
	*list = slices.Delete(*list, i, i+1)
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
	consider(overlapping(*r.kind(e.ofPod), e.subnet))
	gateway := netip.PrefixFrom(e.gateway(), e.gateway().BitLen())
	if t := overlapping(*r.kind(!e.ofPod), gateway); t != nil && t.gateway() == e.gateway() && t.subnet.Overlaps(e.subnet) {
		consider(t)
	}
	for _, a := range e.addrs {
		if a.IsValid() {
			host := netip.PrefixFrom(a, a.BitLen())
			consider(overlapping(r.blocks, host))
			consider(overlapping(r.pods, host))
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

// overlapping returns, of leases in order of which none overlap, the first
// whose subnet overlaps the prefix.
func overlapping(list []*tracked, p netip.Prefix) *tracked {
	i, _ := search(list, p)
	switch {
	case i > 0 && list[i-1].subnet.Overlaps(p):
		return list[i-1]
	case i < len(list) && list[i].subnet.Overlaps(p):
		return list[i]
	}
	return nil
}

func search(list []*tracked, subnet netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(list, subnet, func(t *tracked, p netip.Prefix) int { return t.subnet.Compare(p) })
}

func (r *roster) searchAddr(f family, a netip.Addr, subnet netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(r.byAddr[f], a, func(t *tracked, a netip.Addr) int {
		if c := t.addrs[f].Compare(a); c != 0 {
			return c
		}
		return t.subnet.Compare(subnet)
	})
}
