// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"net/netip"
)

// SyntaxError rejects an entry, or a value that cannot become part of one.
type SyntaxError struct {
	Field string // which part
	Value string // what was found, shortened
	Want  string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("journal entry: %s %q: want %s", e.Field, e.Value, e.Want)
}

// syntax builds a SyntaxError whose value fits on one screen line.
func syntax(field, value, want string) error {
	const most = 60
	if len(value) > most {
		value = value[:most] + "..."
	}
	return &SyntaxError{Field: field, Value: value, Want: want}
}

// AddressError rejects an entry that takes an address which another record of
// the same scope holds.
type AddressError struct {
	Addr  netip.Addr
	Key   string // who wants it: network/containerID/ifname
	Owner string // who has it
}

func (e *AddressError) Error() string {
	if e.Key == e.Owner {
		return fmt.Sprintf("address %s for %s: listed twice", e.Addr, e.Key)
	}
	return fmt.Sprintf("address %s for %s: held by %s", e.Addr, e.Key, e.Owner)
}

// PhaseError rejects an entry that does not fit the phase its record is in.
type PhaseError struct {
	Verb  string // of the entry
	Key   string
	Phase Phase // 0: there is no record
	Want  string
}

func (e *PhaseError) Error() string {
	if e.Phase == 0 {
		return fmt.Sprintf("%s %s: no record of it; want %s", e.Verb, e.Key, e.Want)
	}
	return fmt.Sprintf("%s %s: the record is in phase %s; want %s", e.Verb, e.Key, e.Phase, e.Want)
}

// KindError rejects an entry for a key that has a record of the other kind.
// It happens where weft-cni and another plugin's weft-ipam serve one network
// from one state directory.
type KindError struct {
	Key        string
	Have, Want Kind
}

func (e *KindError) Error() string {
	return fmt.Sprintf("record %s is of kind %s, the new one is of kind %s: release the old one first, or give the two configurations different names or state directories",
		e.Key, e.Have, e.Want)
}
