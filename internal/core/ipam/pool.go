// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Set is a list of ranges of one family that serve as one: an attachment gets
// one address of it, from the first range that has one.
type Set []Range

// Pool is what an attachment's addresses come from: one of every set, so a
// dual-stack network has two sets. Methods expect the result of NewPool.
type Pool struct{ Sets []Set }

// NewPool canonicalises every range as NewRange does. It refuses an empty pool
// or set, a set of two families, and ranges that overlap, in one set or across
// sets: an address must belong to one place. Errors name a range by its place
// in the configuration: ranges[set][range].
func NewPool(sets []Set) (Pool, error) {
	if len(sets) == 0 {
		return Pool{}, errors.New("pool without ranges: want at least one range")
	}
	p := Pool{Sets: make([]Set, len(sets))}
	for i, s := range sets {
		set, err := newSet(i, s)
		if err != nil {
			return Pool{}, err
		}
		p.Sets[i] = set
	}
	if err := p.checkOverlap(); err != nil {
		return Pool{}, err
	}
	return p, nil
}

func newSet(i int, s Set) (Set, error) {
	if len(s) == 0 {
		return nil, fmt.Errorf("ranges[%d] is empty: want at least one range", i)
	}
	set := make(Set, len(s))
	for j, r := range s {
		canonical, err := NewRange(r)
		if err != nil {
			return nil, fmt.Errorf("ranges[%d][%d]: %w", i, j, err)
		}
		set[j] = canonical
		if a, b := set[0].First, canonical.First; a.Is4() != b.Is4() {
			return nil, fmt.Errorf("ranges[%d][%d]: %s is %s but ranges[%d][0], %s, is %s; an attachment gets one address of a set, so give each family its own set",
				i, j, canonical, family(b), i, set[0], family(a))
		}
	}
	return set, nil
}

// checkOverlap compares neighbours in the order of addresses: if any two ranges
// overlap then so do two neighbours.
func (p Pool) checkOverlap() error {
	type place struct {
		set, index int
		Range
	}
	var all []place
	for i, s := range p.Sets {
		for j, r := range s {
			all = append(all, place{i, j, r})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return a.First.Compare(b.First) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; !a.Last.Less(b.First) {
			return fmt.Errorf("ranges[%d][%d], %s, overlaps ranges[%d][%d], %s: an address must be in one range only",
				a.set, a.index, a.Range, b.set, b.index, b.Range)
		}
	}
	return nil
}

// Subnets returns the distinct subnets in the order of the configuration.
func (p Pool) Subnets() []netip.Prefix {
	var subnets []netip.Prefix
	for _, s := range p.Sets {
		for _, r := range s {
			if !slices.Contains(subnets, r.Subnet) {
				subnets = append(subnets, r.Subnet)
			}
		}
	}
	return subnets
}

// Find returns the index of the set and the range from which a can be
// allocated.
func (p Pool) Find(a netip.Addr) (set int, r Range, ok bool) {
	for i, s := range p.Sets {
		for _, r := range s {
			if r.Contains(a) {
				return i, r, true
			}
		}
	}
	return 0, Range{}, false
}

// String lists all ranges of the pool.
func (p Pool) String() string {
	var all Set
	for _, s := range p.Sets {
		all = append(all, s...)
	}
	return all.String()
}

// namedRanges is how many ranges a message names before it only counts them.
const namedRanges = 4

// String lists the ranges of the set.
func (s Set) String() string {
	var b strings.Builder
	for i, r := range s {
		if i == namedRanges {
			fmt.Fprintf(&b, " and %d more", len(s)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// Size returns how many addresses can be allocated from the set; 2^64-1 stands
// for that many or more.
func (s Set) Size() uint64 {
	var n uint64
	for _, r := range s {
		n = saturatingAdd(n, r.Size())
	}
	return n
}
