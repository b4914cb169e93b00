// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
)

// span is a run of allocatable addresses without a gap, both ends inclusive.
// The spans of a range are what remains of it without gateway and excludes;
// they let a search cross a gap of any size in one step.
type span struct{ first, last netip.Addr }

// spans returns the allocatable addresses of the range, ascending and disjoint.
func (r Range) spans() []span {
	gaps := make([]span, 0, len(r.Exclude)+1)
	for _, p := range r.Exclude {
		gaps = append(gaps, span{p.Addr(), lastOf(p)})
	}
	if r.Gateway.IsValid() {
		gaps = append(gaps, span{r.Gateway, r.Gateway})
	}
	slices.SortFunc(gaps, func(a, b span) int { return a.first.Compare(b.first) })

	var free []span
	next := r.First // the lowest address not yet decided
	for _, g := range gaps {
		if r.Last.Less(g.first) {
			break
		}
		if g.last.Less(next) {
			continue
		}
		if next.Less(g.first) {
			free = append(free, span{next, g.first.Prev()})
		}
		next = g.last.Next()
		// Invalid: the gap ended with the last address of the family.
		if !next.IsValid() || r.Last.Less(next) {
			return free
		}
	}
	return append(free, span{next, r.Last})
}

// size returns the number of addresses; 2^64-1 stands for that many or more.
func (s span) size() uint64 {
	a, b := s.first.As16(), s.last.As16()
	lo, borrow := bits.Sub64(binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(a[8:]), 0)
	hi, _ := bits.Sub64(binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(a[:8]), borrow)
	if hi != 0 {
		return math.MaxUint64
	}
	return saturatingAdd(lo, 1)
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// spanAt returns the index of the span that holds a.
func spanAt(spans []span, a netip.Addr) (int, bool) {
	return slices.BinarySearchFunc(spans, a, func(s span, a netip.Addr) int {
		switch {
		case s.last.Less(a):
			return -1
		case a.Less(s.first):
			return 1
		}
		return 0
	})
}

// lastOf returns the highest address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		b := p.Addr().As4()
		fillHostBits(b[:], p.Bits())
		return netip.AddrFrom4(b)
	}
	b := p.Addr().As16()
	fillHostBits(b[:], p.Bits())
	return netip.AddrFrom16(b)
}

func fillHostBits(b []byte, from int) {
	for i := from / 8; i < len(b); i++ {
		keep := max(from-8*i, 0)
		b[i] |= 0xff >> keep
	}
}
