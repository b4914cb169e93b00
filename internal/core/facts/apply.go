// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/ipam"
)

// Apply adds one entry to the facts. It returns a *SyntaxError, *PhaseError,
// *AddressError or *KindError, and then nothing has changed.
//
// The text is one line: package journal neither reads nor writes an entry with
// a newline, and searching each for one again would take a replay 8 % more
// time. The facts keep parts of text; they are never copied.
func (f *Facts) Apply(text string) error {
	var e entry
	if err := e.parse(text, f.room); err != nil {
		return err
	}
	if cap(e.addrs) > cap(f.room) {
		f.room = e.addrs[:0]
	}
	switch e.verb {
	case "intent":
		e.phase, e.created, e.since = Intent, e.at, e.at
		return f.hold(&e)
	case "reserve":
		e.phase, e.created, e.since = Complete, e.at, e.at
		return f.hold(&e)
	case "record":
		return f.hold(&e)
	case "freed":
		return f.restore(&e)
	case "config":
		f.config, f.configAt = e.text, e.at
		return nil
	}
	return f.step(&e)
}

// hold makes the key's record what the entry says, in place of an earlier one.
func (f *Facts) hold(e *entry) error {
	hash := f.hash(e.label)
	i, replaces := f.find(e.label, hash)
	if replaces && e.verb == "record" {
		return &PhaseError{Verb: e.verb, Key: e.label, Phase: f.slots[i].phase, Want: "no record"}
	}
	if replaces && f.slots[i].kind() != e.kind {
		return &KindError{Key: e.label, Have: f.slots[i].kind(), Want: e.kind}
	}
	var held []netip.Addr
	if replaces {
		held = f.slots[i].addresses()
	}
	if err := f.exchange(e, held); err != nil {
		return err
	}
	if !replaces {
		i = f.place(hash)
	}
	f.slots[i] = slot{
		text: e.text, keyLen: int32(len(e.label)),
		since: e.since, created: e.created, suspect: e.suspect,
		phase: e.phase, ipam: e.kind == IPAM,
	}
	return nil
}

// exchange takes the addresses of the entry for its key, and frees those of
// held that are not among them; or it does nothing and returns an error.
func (f *Facts) exchange(e *entry, held []netip.Addr) error {
	u := f.usage(scopeOf(e.kind, e.network))
	if len(held) == 0 && len(e.addrs) == 1 {
		// The usual entry of a long replay: taking one address either
		// succeeds or changes nothing, so there is no need to look first.
		if u.Take(e.addrs[0], e.label) == nil {
			return nil
		}
	}
	if err := checkFree(u, e); err != nil {
		return err
	}
	for _, a := range held {
		if !slices.Contains(e.addrs, a) {
			u.Free(a, e.at)
		}
	}
	for _, a := range e.addrs {
		if !slices.Contains(held, a) {
			take(u, a, e.label)
		}
	}
	return nil
}

// checkFree returns an error unless the record may hold all its addresses.
func checkFree(u *ipam.Usage, e *entry) error {
	for n, a := range e.addrs {
		if owner, taken := u.Owner(a); taken && owner != e.label {
			return &AddressError{Addr: a, Key: e.label, Owner: owner}
		}
		if slices.Contains(e.addrs[:n], a) {
			return &AddressError{Addr: a, Key: e.label, Owner: e.label}
		}
	}
	return nil
}

// take cannot fail after checkFree.
func take(u *ipam.Usage, a netip.Addr, owner string) {
	if err := u.Take(a, owner); err != nil {
		panic("facts: address was free and cannot be taken: " + err.Error())
	}
}

// place returns an empty slot for a new record, whose label has this hash.
func (f *Facts) place(hash uint32) int32 {
	i := int32(len(f.slots))
	if n := len(f.holes); n > 0 {
		i, f.holes = f.holes[n-1], f.holes[:n-1]
	} else {
		f.slots = append(f.slots, slot{})
	}
	f.index.Put(hash, i)
	return i
}

// restore puts an address back among the released ones.
func (f *Facts) restore(e *entry) error {
	u := f.usage(scopeOf(e.kind, e.network))
	if owner, taken := u.Owner(e.addrs[0]); taken {
		return &AddressError{Addr: e.addrs[0], Key: "freed", Owner: owner}
	}
	u.Restore(e.addrs[0], e.at)
	return nil
}

// step applies an entry that moves an existing record.
func (f *Facts) step(e *entry) error {
	hash := f.hash(e.label)
	i, ok := f.find(e.label, hash)
	if !ok {
		return &PhaseError{Verb: e.verb, Key: e.label, Want: "one"}
	}
	s := &f.slots[i]
	switch e.verb {
	case "complete":
		if s.phase != Intent {
			return &PhaseError{Verb: e.verb, Key: e.label, Phase: s.phase, Want: "intent"}
		}
		s.phase, s.since = Complete, e.at
	case "releasing":
		// A repeated DEL does not begin anew.
		if s.phase != Releasing {
			s.phase, s.since = Releasing, e.at
		}
	case "released":
		if s.phase == Complete {
			return &PhaseError{Verb: e.verb, Key: e.label, Phase: s.phase, Want: "releasing or intent"}
		}
		f.release(i, hash, e.at)
	case "suspect":
		if s.suspect == 0 {
			s.suspect = e.at
		}
	case "cleared":
		s.suspect = 0
	}
	return nil
}

// release ends a record and frees its addresses.
func (f *Facts) release(i int32, hash uint32, at int64) {
	s := &f.slots[i]
	u := f.usage(s.scope())
	for _, a := range s.addresses() {
		u.Free(a, at)
	}
	f.index.Delete(hash, i)
	*s = slot{}
	f.holes = append(f.holes, i)
}
