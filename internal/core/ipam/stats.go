// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Stats counts the addresses of one set.
type Stats struct {
	Total   uint64 // allocatable; 2^64-1 stands for that many or more
	Used    int    // of these, used
	Free    uint64 // Total less Used: what can still be granted, Cooling included
	Cooling int    // of the free ones, those that are granted only if no other is left
	// Foreign counts used addresses that are in a subnet of the set and yet
	// not allocatable from it: taken under an earlier configuration, or from
	// another pool of the same scope.
	Foreign int
}

// Stats counts the addresses of one set. Now and cooldown are in nanoseconds,
// as in Request. Its cost is proportional to the used addresses of the scope.
func (u *Usage) Stats(s Set, now, cooldown int64) Stats {
	st := Stats{Total: s.Size(), Cooling: u.cooling(s, now, cooldown)}
	for a := range u.used.all {
		switch {
		case u.inSet(s, a):
			st.Used++
		case s.inSubnet(a):
			st.Foreign++
		}
	}
	st.Free = st.Total - min(uint64(st.Used), st.Total)
	return st
}

// cooling counts from the newest release back to the first that has rested.
func (u *Usage) cooling(s Set, now, cooldown int64) int {
	n := 0
	for _, r := range slices.Backward(u.released.entries) {
		if !cooling(r.at, now, cooldown) {
			break
		}
		if !r.dead && u.inSet(s, r.addr) {
			n++
		}
	}
	return n
}

// inSet is Range.Contains for many calls.
func (u *Usage) inSet(s Set, a netip.Addr) bool {
	for _, r := range s {
		if u.view(r).contains(a) {
			return true
		}
	}
	return false
}

func (s Set) inSubnet(a netip.Addr) bool {
	for _, r := range s {
		if r.Subnet.Contains(a) {
			return true
		}
	}
	return false
}

func (u *Usage) exhausted(s Set, r Request) *ExhaustedError {
	e := &ExhaustedError{Set: s, Total: s.Size(), Cooling: u.cooling(s, r.Now, r.Cooldown)}
	groups := make(map[string]*OwnerGroup)
	for a, owner := range u.Used {
		if !u.inSet(s, a) {
			continue
		}
		e.Used++
		name, _, _ := strings.Cut(owner, "/")
		if groups[name] == nil {
			groups[name] = &OwnerGroup{Group: name, Example: owner}
		}
		groups[name].Count++
	}
	for _, g := range groups {
		e.ByOwnerGroup = append(e.ByOwnerGroup, *g)
	}
	slices.SortFunc(e.ByOwnerGroup, func(a, b OwnerGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Group, b.Group))
	})
	return e
}
