// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"sort"

	"github.com/google/nftables"
)

// addrRange is a range of addresses of one family, both ends included.
type addrRange struct{ first, last netip.Addr }

func (r addrRange) String() string {
	if r.first == r.last {
		return r.first.String()
	}
	return r.first.String() + "-" + r.last.String()
}

// rangesOf returns the union of the prefixes of one family as ascending ranges
// that neither overlap nor touch: the kernel refuses an interval set whose
// elements overlap.
func rangesOf(prefixes []netip.Prefix, ipv6 bool) []addrRange {
	var list []addrRange
	for _, p := range prefixes {
		if p.Addr().Is6() == ipv6 {
			list = append(list, addrRange{p.Masked().Addr(), lastAddr(p)})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].first.Less(list[j].first) })
	var union []addrRange
	for _, r := range list {
		if n := len(union); n > 0 && !touches(union[n-1], r) {
			union = append(union, r)
		} else if n == 0 {
			union = append(union, r)
		} else if union[n-1].last.Less(r.last) {
			union[n-1].last = r.last
		}
	}
	return union
}

// touches reports whether b, which does not begin before a, overlaps a or
// begins right after it.
func touches(a, b addrRange) bool {
	next := a.last.Next() // invalid after the last address of the family
	return !next.IsValid() || !next.Less(b.first)
}

// lastAddr returns the highest address of the prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		switch keep := p.Bits() - 8*i; {
		case keep <= 0:
			b[i] = 0xff
		case keep < 8:
			b[i] |= 0xff >> keep
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// intervals writes ranges as nftables wants them: each as its first address
// and the first one beyond it, which a range up to the end of the family lacks.
func intervals(ranges []addrRange) []nftables.SetElement {
	var elements []nftables.SetElement
	for _, r := range ranges {
		elements = append(elements, nftables.SetElement{Key: r.first.AsSlice()})
		if beyond := r.last.Next(); beyond.IsValid() {
			elements = append(elements, nftables.SetElement{Key: beyond.AsSlice(), IntervalEnd: true})
		}
	}
	return elements
}

// fromIntervals is the inverse of intervals, for elements in any order.
func fromIntervals(elements []nftables.SetElement, ipv6 bool) []addrRange {
	sort.SliceStable(elements, func(i, j int) bool {
		a, b := addrOf(elements[i].Key), addrOf(elements[j].Key)
		return a.Less(b) || (a == b && elements[i].IntervalEnd && !elements[j].IntervalEnd)
	})
	top := lastAddr(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	if ipv6 {
		top = lastAddr(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	var ranges []addrRange
	for _, e := range elements {
		at := addrOf(e.Key)
		switch {
		case !e.IntervalEnd:
			ranges = append(ranges, addrRange{at, top})
		case len(ranges) > 0: // an end without a beginning is the kernel's own mark of the lowest address
			ranges[len(ranges)-1].last = at.Prev()
		}
	}
	return ranges
}
