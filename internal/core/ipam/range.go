// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Range is a run of addresses inside one subnet. Methods expect the result of
// NewRange.
type Range struct {
	Subnet  netip.Prefix
	First   netip.Addr     // inclusive
	Last    netip.Addr     // inclusive
	Gateway netip.Addr     // never allocated; zero: none
	Exclude []netip.Prefix // never allocated; ascending, disjoint
}

// mapped is where IPv6 spells IPv4 addresses (RFC 4291, section 2.5.5.2). An
// address in there would have two spellings and so could get two owners.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// NewRange fills in the defaults of the host-local plugin, whose configuration
// people bring along: First is the address after the network address, Last the
// one before the broadcast address (IPv6 has none: the last address), Gateway
// the address after the network address. In /31, /32, /127 and /128 there is
// neither network nor broadcast address (RFC 3021, RFC 6164): all addresses
// count and there is no default gateway.
//
// It refuses a subnet with host bits, bounds outside the subnet or in the wrong
// order, and anything of another family. The gateway may lie outside the
// subnet: the link is point-to-point, so any address of the family can serve.
// NewRange applied to its own result changes nothing. Everything may be
// excluded: that is how a range is drained.
func NewRange(r Range) (Range, error) {
	if err := checkSubnet(r.Subnet); err != nil {
		return Range{}, err
	}
	r = r.withDefaults()
	if err := r.checkBounds(); err != nil {
		return Range{}, fmt.Errorf("range of subnet %s: %w", r.Subnet, err)
	}
	if err := r.checkFamily("gateway", r.Gateway); r.Gateway.IsValid() && err != nil {
		return Range{}, fmt.Errorf("range of subnet %s: %w", r.Subnet, err)
	}
	exclude, err := r.canonicalExclude()
	if err != nil {
		return Range{}, fmt.Errorf("range of subnet %s: %w", r.Subnet, err)
	}
	r.Exclude = exclude
	return r, nil
}

func checkSubnet(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return errors.New("range without a subnet: want a prefix such as 10.42.3.0/24")
	case p.Addr().Is4In6():
		return fmt.Errorf("subnet %s: is an IPv4 prefix in IPv6 spelling; write it as IPv4", p)
	case p != p.Masked():
		return fmt.Errorf("subnet %s: has host bits set; it should be %s", p, p.Masked())
	}
	return nil
}

func (r Range) withDefaults() Range {
	net, last := r.Subnet.Addr(), lastOf(r.Subnet)
	first := net
	if net.BitLen()-r.Subnet.Bits() > 1 {
		first = net.Next()
		if !r.Gateway.IsValid() {
			r.Gateway = first
		}
		if net.Is4() {
			last = last.Prev()
		}
	}
	if !r.First.IsValid() {
		r.First = first
	}
	if !r.Last.IsValid() {
		r.Last = last
	}
	return r
}

func (r Range) checkBounds() error {
	for _, b := range []struct {
		name string
		addr netip.Addr
	}{{"first address", r.First}, {"last address", r.Last}} {
		if err := r.checkFamily(b.name, b.addr); err != nil {
			return err
		}
		if !r.Subnet.Contains(b.addr) {
			return fmt.Errorf("%s %s is outside the subnet; want one of %s to %s",
				b.name, b.addr, r.Subnet.Addr(), lastOf(r.Subnet))
		}
	}
	if r.Last.Less(r.First) {
		return fmt.Errorf("first address %s is after the last, %s; swap them", r.First, r.Last)
	}
	return nil
}

// checkFamily also refuses the spellings of an address that compare unequal to
// its plain one.
func (r Range) checkFamily(name string, a netip.Addr) error {
	switch {
	case a.Is4() != r.Subnet.Addr().Is4() || a.Is4In6():
		return fmt.Errorf("%s %s is not an %s address as the subnet is", name, a, family(r.Subnet.Addr()))
	case a.Zone() != "":
		return fmt.Errorf("%s %s has a zone; write %s", name, a, a.WithZone(""))
	}
	return nil
}

// canonicalExclude sorts, drops what another prefix covers, and adds the
// IPv4-mapped block where the range includes it.
func (r Range) canonicalExclude() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, p := range r.Exclude {
		switch {
		case !p.IsValid() || p.Addr().Is4() != r.Subnet.Addr().Is4():
			return nil, fmt.Errorf("excluded prefix %s is not an %s prefix as the subnet is", p, family(r.Subnet.Addr()))
		case p != p.Masked():
			// Either one address or the whole block can be meant, so ask.
			return nil, fmt.Errorf("excluded prefix %s has host bits set; it should be %s for the block or %s for the address",
				p, p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
		all = append(all, p)
	}
	if r.First.Is6() && !r.Last.Less(mapped.Addr()) && !lastOf(mapped).Less(r.First) {
		all = append(all, mapped)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	var kept []netip.Prefix
	for _, p := range all {
		// Prefixes nest or are disjoint, and the wider sorts first.
		if n := len(kept); n == 0 || !kept[n-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// Contains reports whether a can be allocated from the range: it is between
// First and Last, not the gateway and not excluded.
func (r Range) Contains(a netip.Addr) bool {
	// Compare orders families apart but a zone after the plain address.
	if a.Less(r.First) || r.Last.Less(a) || a == r.Gateway || a.Zone() != "" {
		return false
	}
	for _, p := range r.Exclude {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// Size returns how many addresses can be allocated from the range; 2^64-1
// stands for that many or more.
func (r Range) Size() uint64 {
	var n uint64
	for _, s := range r.spans() {
		n = saturatingAdd(n, s.size())
	}
	return n
}

// String returns the subnet and the bounds: 10.42.3.0/24 (10.42.3.1-10.42.3.254).
func (r Range) String() string {
	return fmt.Sprintf("%s (%s-%s)", r.Subnet, r.First, r.Last)
}

func (r Range) equal(s Range) bool {
	return r.Subnet == s.Subnet && r.First == s.First && r.Last == s.Last &&
		r.Gateway == s.Gateway && slices.Equal(r.Exclude, s.Exclude)
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
