// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
)

type nat struct {
	h      *Handle
	tables []topology.NATKey
}

// NAT returns the driver of the masquerade tables of these names. All that is
// in a table of the name and of family inet is ours.
func (h *Handle) NAT(tables ...topology.NATKey) nat { return nat{h, tables} }

// NATOf returns what EnsureNode would masquerade, in the one spelling of it.
func NATOf(n Node) topology.NAT { return natOf(familiesOf(n)) }

func natOf(families []natFamily) topology.NAT {
	var sources, direct []string
	for _, f := range families {
		for _, r := range f.sources {
			sources = append(sources, r.String())
		}
		for _, r := range f.direct {
			direct = append(direct, r.String())
		}
	}
	return topology.NAT{Sources: strings.Join(sources, " "), Direct: strings.Join(direct, " ")}
}

// parseNAT is the inverse of natOf. It accepts that one spelling only: the
// kernel refuses an interval set whose elements overlap.
func parseNAT(v topology.NAT) ([]natFamily, error) {
	families := []natFamily{{}, {ipv6: true}}
	for i := range families {
		f := &families[i]
		var err error
		if f.sources, err = parseRanges(v.Sources, f.ipv6); err != nil {
			return nil, fmt.Errorf("sources of masquerading: %w", err)
		}
		if f.direct, err = parseRanges(v.Direct, f.ipv6); err != nil {
			return nil, fmt.Errorf("destinations without masquerading: %w", err)
		}
	}
	families = slices.DeleteFunc(families, func(f natFamily) bool { return len(f.sources) == 0 })
	if len(families) == 0 || natOf(families) != v {
		return nil, fmt.Errorf("masquerading from %q not to %q: not in the form of NATOf", v.Sources, v.Direct)
	}
	return families, nil
}

// parseRanges returns the ranges of one family out of a list.
func parseRanges(list string, ipv6 bool) (ranges []addrRange, err error) {
	for _, s := range strings.Fields(list) {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		r := addrRange{}
		if r.first, err = netip.ParseAddr(first); err != nil {
			return nil, err
		}
		if r.last, err = netip.ParseAddr(last); err != nil {
			return nil, err
		}
		if r.first.Is6() != r.last.Is6() || r.last.Less(r.first) {
			return nil, fmt.Errorf("range %q: it ends before it begins", s)
		}
		if r.first.Is6() != ipv6 {
			continue
		}
		if n := len(ranges); n > 0 && (r.first.Less(ranges[n-1].last) || touches(ranges[n-1], r)) {
			return nil, fmt.Errorf("range %q: it is not above the one before it", s)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// Observe implements reconcile.Driver. A table that is not whole has the zero
// value, which nobody wants.
func (d nat) Observe() (map[topology.NATKey]topology.NAT, error) {
	observed := map[topology.NATKey]topology.NAT{}
	for _, k := range d.tables {
		v, there, err := d.h.observeNAT(string(k))
		if err != nil {
			return nil, err
		}
		if there {
			observed[k] = v
		}
	}
	return observed, nil
}

// observeNAT reads the sets, and judges by the comments whether the rules are
// those that belong to them.
func (h *Handle) observeNAT(name string) (v topology.NAT, there bool, err error) {
	err = h.withNFT(func(c *conn) error {
		err := c.exec(nftRead(nftGetTable, "look up table", name, func([]byte) error { return nil }, text(unix.NFTA_TABLE_NAME, name)))
		if isErrno(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		there = true
		comments, err := c.masqueradeComments(name)
		if err != nil {
			return err
		}
		var families []natFamily
		for _, f := range []natFamily{{}, {ipv6: true}} {
			var sources, direct bool
			if f.sources, sources, err = c.rangeSet(name, "sources", f); err != nil {
				return err
			}
			if f.direct, direct, err = c.rangeSet(name, "direct", f); err != nil {
				return err
			}
			if sources && direct {
				families = append(families, f)
			}
		}
		if len(comments) > 0 && slices.Equal(comments, commentsOf(families)) {
			v = natOf(families)
		}
		return nil
	})
	return v, there, err
}

// Apply implements reconcile.Driver. A table is replaced as a whole, in one
// transaction.
func (d nat) Apply(ops []delta.Op[topology.NATKey, topology.NAT]) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		name := string(op.Key)
		switch {
		case !slices.Contains(d.tables, op.Key):
			errs[i] = fmt.Errorf("nftables: table %s: not one of this driver's", name)
		case op.Verb == delta.Delete:
			errs[i] = d.h.dropTable(name)
		default:
			errs[i] = d.h.ensureNAT(name, op.Want)
		}
	}
	return errs
}

func (h *Handle) ensureNAT(name string, want topology.NAT) error {
	families, err := parseNAT(want)
	if err != nil {
		return err
	}
	have, _, err := h.observeNAT(name)
	if err != nil || have == want {
		return err
	}
	return h.replaceMasquerade(name, families)
}
