// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
)

// Usage says which addresses of one address scope are used by whom, and which
// were released when. Several pools may share a scope.
//
// Besides these facts it holds caches, which make a search start where the last
// one ended; they never change an answer.
type Usage struct {
	used     holdings
	released queue // disjoint from used
	memory   memory

	views map[viewKey]*view
	// owners is the inverse of used. A process that allocates once is better
	// off searching used once, so the index is made by the second search.
	owners   map[string][]netip.Addr
	searched bool
}

// NewUsage returns a scope without used or released addresses.
func NewUsage() *Usage {
	return &Usage{memory: defaultMemory}
}

// Grow makes room for n used addresses. Called before a replay it halves the
// time of it, since nothing grows step by step.
func (u *Usage) Grow(n int) {
	u.used.list = slices.Grow(u.used.list, max(0, n-u.used.len()))
	u.used.index.Grow(n)
}

// Take records that owner uses a. It returns an *InUseError if somebody else
// does, and does nothing if owner does already.
func (u *Usage) Take(a netip.Addr, owner string) error {
	if owner == "" {
		return fmt.Errorf("take address %s: the owner is empty; name the attachment", a)
	}
	if !plain(a) {
		return fmt.Errorf("take address %s for %s: want a plain IPv4 or IPv6 address without zone", a, owner)
	}
	switch holder := u.used.take(a, owner); holder {
	case "":
	case owner:
		return nil
	default:
		return &InUseError{Addr: a, Owner: holder}
	}
	u.released.remove(a)
	if u.owners != nil {
		u.owners[owner] = append(u.owners[owner], a)
	}
	return nil
}

// Free ends the use of a and remembers its release, at in unix nanoseconds; it
// does nothing if a is not used. Of the releases, the last 4,096 are
// remembered, and up to 65,536 if they lie within one hour; an address whose
// release is forgotten counts as never used.
func (u *Usage) Free(a netip.Addr, at int64) {
	if u.drop(a) {
		u.release(a, at)
	}
}

// Restore replays a release known from a compacted journal: like Free, for an
// address that was not used before. It does nothing if a is used now, or is no
// address that Take could have recorded.
func (u *Usage) Restore(a netip.Addr, at int64) {
	if plain(a) && u.used.owner(a) == "" {
		u.release(a, at)
	}
}

// plain reports whether a is spelt in the one way that this package knows it
// by: another spelling of the same address could get a second owner.
func plain(a netip.Addr) bool { return a.IsValid() && !a.Is4In6() && a.Zone() == "" }

// Forget makes a an address never used, whatever it was: for an intent that
// was undone before anybody could have seen the address.
func (u *Usage) Forget(a netip.Addr) {
	dropped, removed := u.drop(a), u.released.remove(a)
	if dropped || removed {
		u.becameFresh(a)
	}
}

func (u *Usage) release(a netip.Addr, at int64) {
	u.released.push(a, at)
	for u.memory.exceededBy(&u.released) {
		oldest, _ := u.released.oldest()
		u.released.remove(oldest.addr)
		u.becameFresh(oldest.addr)
	}
}

// drop ends the use of a.
func (u *Usage) drop(a netip.Addr) bool {
	owner := u.used.owner(a)
	if owner == "" {
		return false
	}
	u.used.remove(a)
	if u.owners == nil {
		return true
	}
	rest := slices.DeleteFunc(u.owners[owner], func(b netip.Addr) bool { return a == b })
	if len(rest) == 0 {
		delete(u.owners, owner)
	} else {
		u.owners[owner] = rest
	}
	return true
}

// fresh reports whether a was never used.
func (u *Usage) fresh(a netip.Addr) bool { return u.used.owner(a) == "" && !u.released.has(a) }

func (u *Usage) becameFresh(a netip.Addr) {
	for _, v := range u.views {
		v.becameFresh(a)
	}
}

// Owner returns who uses a.
func (u *Usage) Owner(a netip.Addr) (string, bool) {
	owner := u.used.owner(a)
	return owner, owner != ""
}

// Held returns the addresses that owner uses, ascending.
func (u *Usage) Held(owner string) []netip.Addr {
	var held []netip.Addr
	switch {
	case u.owners != nil:
		held = slices.Clone(u.owners[owner])
	case !u.searched:
		u.searched = true
		for a, o := range u.used.all {
			if o == owner {
				held = append(held, a)
			}
		}
	default:
		u.owners = make(map[string][]netip.Addr, u.used.len())
		for a, o := range u.used.all {
			u.owners[o] = append(u.owners[o], a)
		}
		held = slices.Clone(u.owners[owner])
	}
	slices.SortFunc(held, netip.Addr.Compare)
	return held
}

// Len returns how many addresses are used.
func (u *Usage) Len() int { return u.used.len() }

// Used yields the used addresses and their owners, ascending. Its shape is that
// of iter.Seq2: for a, owner := range u.Used. The loop must not change u.
func (u *Usage) Used(yield func(a netip.Addr, owner string) bool) {
	type use struct {
		addr  netip.Addr
		owner string
	}
	uses := make([]use, 0, u.used.len())
	for a, owner := range u.used.all {
		uses = append(uses, use{a, owner})
	}
	slices.SortFunc(uses, func(a, b use) int { return a.addr.Compare(b.addr) })
	for _, use := range uses {
		if !yield(use.addr, use.owner) {
			return
		}
	}
}

// Released yields the released addresses and when that was in unix
// nanoseconds, oldest release first. Restore in this order rebuilds the queue.
// The loop must not change u.
func (u *Usage) Released(yield func(a netip.Addr, at int64) bool) {
	for _, r := range u.released.entries {
		if !r.dead && !yield(r.addr, r.at) {
			return
		}
	}
}
