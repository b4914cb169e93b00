// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"strings"
)

// ReservedElsewhere is the owner in an InUseError for an address that the
// request's Avoid holds.
const ReservedElsewhere = "reserved elsewhere"

// InUseError says that an address belongs to somebody else.
type InUseError struct {
	Addr  netip.Addr
	Owner string // or ReservedElsewhere
}

func (e *InUseError) Error() string {
	if e.Owner == ReservedElsewhere {
		return fmt.Sprintf("address %s is reserved elsewhere; request another one or remove the reservation", e.Addr)
	}
	return fmt.Sprintf("address %s is used by %s; request another one or delete that attachment first", e.Addr, e.Owner)
}

// NotInPoolError says that a requested address cannot be allocated from any
// range of the pool.
type NotInPoolError struct {
	Addr netip.Addr
	Pool Pool
}

func (e *NotInPoolError) Error() string {
	return fmt.Sprintf("requested address %s %s; request an address of %s, or none", e.Addr, e.reason(), e.Pool)
}

// reason tells apart what the reader has to correct: the request, or the
// configuration that keeps this address back.
func (e *NotInPoolError) reason() string {
	reason := "is in no range of the pool"
	for _, s := range e.Pool.Sets {
		for _, r := range s {
			switch {
			case e.Addr == r.Gateway:
				return fmt.Sprintf("is the gateway of range %s", r)
			case !e.Addr.Less(r.First) && !r.Last.Less(e.Addr):
				return fmt.Sprintf("is excluded from range %s", r)
			case r.Subnet.Contains(e.Addr):
				reason = fmt.Sprintf("is in subnet %s but in no range of the pool", r.Subnet)
			}
		}
	}
	return reason
}

// WantError says that a request names two addresses where there can be one.
type WantError struct {
	Addr, Other netip.Addr // equal: one address was named twice
	Set         Set        // the set that both are in; nil if they are equal
}

func (e *WantError) Error() string {
	if e.Addr == e.Other {
		return fmt.Sprintf("address %s is requested twice; request it once", e.Addr)
	}
	return fmt.Sprintf("addresses %s and %s are both requested from %s, which gives one address to an attachment; request one of them",
		e.Addr, e.Other, e.Set)
}

// OwnerGroup counts the addresses of the owners whose name begins alike.
type OwnerGroup struct {
	Group   string // the owner's name before the first "/": a network or a namespace
	Count   int    // addresses
	Example string // the owner of the group's lowest address
}

// ExhaustedError says that a set has no address to give: each one is used or
// reserved elsewhere.
type ExhaustedError struct {
	Set     Set
	Total   uint64 // allocatable addresses
	Used    int    // by whom, see ByOwnerGroup
	Cooling int    // released recently, and reserved elsewhere or they would have been granted
	// ByOwnerGroup holds the used addresses of the set, the largest group
	// first, equal ones by name.
	ByOwnerGroup []OwnerGroup
}

// namedGroups is how many groups of owners the message names.
const namedGroups = 3

func (e *ExhaustedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no free address in %s: ", e.Set)
	if e.Total == 0 {
		b.WriteString("its gateways and excluded prefixes cover all of it; exclude less or add a range")
		return b.String()
	}
	fmt.Fprintf(&b, "%d of %d used", e.Used, e.Total)
	separator := " ("
	for i, g := range e.ByOwnerGroup {
		if i == namedGroups {
			fmt.Fprintf(&b, " and %d more groups", len(e.ByOwnerGroup)-i)
			break
		}
		fmt.Fprintf(&b, "%s%d by %s, such as %s", separator, g.Count, g.Group, g.Example)
		separator = "; "
	}
	if len(e.ByOwnerGroup) > 0 {
		b.WriteString(")")
	}
	if reserved := e.Total - min(uint64(e.Used), e.Total); reserved > 0 {
		fmt.Fprintf(&b, ", %d reserved elsewhere", reserved)
	}
	b.WriteString("; delete attachments that are no longer needed, or give the network another range")
	return b.String()
}
