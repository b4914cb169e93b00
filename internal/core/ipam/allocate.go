// SPDX-License-Identifier: Apache-2.0

package ipam

import "net/netip"

// Request asks for one address of every set of a pool.
type Request struct {
	// Owner is whom the addresses are for. What it holds already counts as
	// free for it, and is preferred: so a repeated ADD gets the same again.
	Owner string
	// Want are requested addresses, at most one of a set. Sets without one
	// get a chosen address. A requested address need not have cooled down.
	Want []netip.Addr
	// Now is the time in unix nanoseconds; Cooldown is how many of them an
	// address rests after its release. 0 or less: it does not rest.
	Now, Cooldown int64
	// Avoid reports addresses that are reserved elsewhere: they are neither
	// chosen nor granted by request. It may be nil, and should hold for few.
	Avoid func(netip.Addr) bool
}

// Allocation is one granted address.
type Allocation struct {
	Addr  netip.Addr
	Range Range // it comes from
	Early bool  // reused before its cool-down ended, because nothing else was free
}

// Grant is one allocation for each set, in the order of the sets.
type Grant []Allocation

// Allocate finds an address in every set, or fails: then nothing is granted. It
// records nothing; the caller makes the grant durable and calls Take. The order
// of choice is described in the package documentation.
//
// Errors: *ExhaustedError, *InUseError and *NotInPoolError and *WantError for
// requested addresses.
func (u *Usage) Allocate(p Pool, r Request) (Grant, error) {
	if r.Avoid == nil {
		r.Avoid = func(netip.Addr) bool { return false }
	}
	grant := make(Grant, len(p.Sets))
	if err := u.grantWanted(grant, p, r); err != nil {
		return nil, err
	}
	held := u.Held(r.Owner)
	for i, set := range p.Sets {
		if grant[i].Addr.IsValid() {
			continue
		}
		chosen, ok := u.choose(set, r, held)
		if !ok {
			return nil, u.exhausted(set, r)
		}
		grant[i] = chosen
	}
	return grant, nil
}

// grantWanted fills the places of the sets for which an address is requested.
func (u *Usage) grantWanted(grant Grant, p Pool, r Request) error {
	for _, a := range r.Want {
		i, from, ok := p.Find(a)
		if !ok {
			return &NotInPoolError{Addr: a, Pool: p}
		}
		if other := grant[i].Addr; other == a {
			return &WantError{Addr: a, Other: a}
		} else if other.IsValid() {
			return &WantError{Addr: a, Other: other, Set: p.Sets[i]}
		}
		if owner := u.used.owner(a); owner != "" && owner != r.Owner {
			return &InUseError{Addr: a, Owner: owner}
		}
		if r.Avoid(a) {
			return &InUseError{Addr: a, Owner: ReservedElsewhere}
		}
		grant[i] = Allocation{Addr: a, Range: from}
	}
	return nil
}

// choose picks one address of a set; held is what the owner uses already.
func (u *Usage) choose(set Set, r Request, held []netip.Addr) (Allocation, bool) {
	for _, from := range set {
		for _, a := range held {
			if from.Contains(a) && !r.Avoid(a) {
				return Allocation{Addr: a, Range: from}, true
			}
		}
	}
	for _, from := range set {
		if a, ok := u.view(from).lowestFresh(u, r.Avoid); ok {
			return Allocation{Addr: a, Range: from}, true
		}
	}
	return u.chooseReleased(set, r)
}

// chooseReleased picks the oldest release of the set. Times do not decrease
// along the queue, so if this one is still cooling then all are.
func (u *Usage) chooseReleased(set Set, r Request) (Allocation, bool) {
	var oldest release
	var chosen Allocation
	for _, from := range set {
		rel, ok := u.view(from).oldestRelease(&u.released, r.Avoid)
		if ok && (!chosen.Addr.IsValid() || rel.seq < oldest.seq) {
			oldest = rel
			chosen = Allocation{Addr: rel.addr, Range: from, Early: cooling(rel.at, r.Now, r.Cooldown)}
		}
	}
	return chosen, chosen.Addr.IsValid()
}
