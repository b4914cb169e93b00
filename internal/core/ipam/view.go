// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"
)

// A view caches how far the search of one range has come. It can be thrown away
// at any time; it only saves looking at the same addresses again.
//
// Invariants:
//   - every allocatable address before cursor is used, released or in loose;
//   - loose is ascending, without duplicates, and all before cursor; it may hold
//     addresses that are no longer fresh;
//   - no live release with a seq less than scanned is in the range.
type view struct {
	of      Range
	spans   []span
	cursor  cursor
	loose   []netip.Addr
	scanned uint64
}

// cursor is a place in the spans; index = len(spans) is the end.
type cursor struct {
	index int
	addr  netip.Addr // in spans[index]
}

type viewKey struct{ first, last netip.Addr }

const (
	// maxViews bounds the cache where ranges come with each request (the
	// CNI capability ipRanges). A host has a handful.
	maxViews = 256
	// maxLoose bounds the fresh addresses remembered behind a cursor.
	maxLoose = 4096
	// maxAvoided bounds how many addresses of a range one search steps over
	// because Avoid holds for them: without it an Avoid that always holds
	// would search an IPv6 subnet for centuries.
	maxAvoided = 1 << 20
)

func (u *Usage) view(r Range) *view {
	key := viewKey{r.First, r.Last}
	// Gateway and excludes may change while the bounds stay.
	if v, ok := u.views[key]; ok && v.of.equal(r) {
		return v
	}
	if u.views == nil || len(u.views) >= maxViews {
		u.views = make(map[viewKey]*view)
	}
	r.Exclude = slices.Clone(r.Exclude)
	v := &view{of: r, spans: r.spans()}
	v.rewind()
	u.views[key] = v
	return v
}

func (v *view) rewind() {
	v.loose = nil
	v.cursor = cursor{}
	if len(v.spans) > 0 {
		v.cursor.addr = v.spans[0].first
	}
}

func (v *view) atEnd(c cursor) bool { return c.index == len(v.spans) }

func (v *view) next(c cursor) cursor {
	if c.addr != v.spans[c.index].last {
		return cursor{c.index, c.addr.Next()}
	}
	if c.index++; v.atEnd(c) {
		return cursor{index: c.index}
	}
	return cursor{c.index, v.spans[c.index].first}
}

func (v *view) contains(a netip.Addr) bool {
	_, ok := spanAt(v.spans, a)
	return ok
}

// becameFresh notes an address that the cursor may have passed. With too many
// of them it is cheaper to search from the start: the cost is spread over the
// calls that it took to get there.
func (v *view) becameFresh(a netip.Addr) {
	if !v.contains(a) || (!v.atEnd(v.cursor) && !a.Less(v.cursor.addr)) {
		return
	}
	if len(v.loose) >= maxLoose {
		v.rewind()
		return
	}
	if i, ok := slices.BinarySearchFunc(v.loose, a, netip.Addr.Compare); !ok {
		v.loose = slices.Insert(v.loose, i, a)
	}
}

// lowestFresh returns the lowest address of the range that was never used. The
// cursor stays on it: only Take makes it used.
func (v *view) lowestFresh(u *Usage, avoid func(netip.Addr) bool) (netip.Addr, bool) {
	if a, ok := v.lowestLoose(u, avoid); ok {
		return a, true
	}
	avoided, full := 0, false
	for c := v.cursor; !v.atEnd(c) && avoided < maxAvoided; {
		if u.fresh(c.addr) {
			if !avoid(c.addr) {
				return c.addr, true
			}
			avoided++
			// Avoid may give another answer next time, so the address
			// must be found again; if it cannot be noted, the cursor
			// must stay before it.
			if full = full || len(v.loose) >= maxLoose; !full {
				v.loose = append(v.loose, c.addr)
			}
		}
		c = v.next(c)
		if !full {
			v.cursor = c
		}
	}
	return netip.Addr{}, false
}

func (v *view) lowestLoose(u *Usage, avoid func(netip.Addr) bool) (netip.Addr, bool) {
	for i := 0; i < len(v.loose); {
		switch a := v.loose[i]; {
		case u.fresh(a) && !avoid(a):
			return a, true
		case u.fresh(a):
			i++
		case i == 0: // the usual case, and cheaper than moving the rest
			v.loose = v.loose[1:]
		default:
			v.loose = slices.Delete(v.loose, i, i+1)
		}
	}
	return netip.Addr{}, false
}

// oldestRelease returns the release of the range that is longest ago.
func (v *view) oldestRelease(q *queue, avoid func(netip.Addr) bool) (release, bool) {
	passing := true
	for _, r := range q.entries[q.from(v.scanned):] {
		if !r.dead && v.contains(r.addr) {
			if !avoid(r.addr) {
				return r, true
			}
			passing = false // Avoid may give another answer next time
		}
		if passing {
			v.scanned = r.seq + 1
		}
	}
	return release{}, false
}
