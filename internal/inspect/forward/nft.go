// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bytes"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// nftChains returns the chains of nftables at the forward hook; iptables-nft
// makes such chains too.
func nftChains() ([]baseChain, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	all, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("nftables: list chains: %w", err)
	}
	families := map[nftables.TableFamily]struct {
		name     string
		families []byte
	}{
		nftables.TableFamilyIPv4: {"ip", []byte{4}},
		nftables.TableFamilyIPv6: {"ip6", []byte{6}},
		nftables.TableFamilyINet: {"inet", []byte{4, 6}},
	}
	var chains []baseChain
	for _, ch := range all {
		family, known := families[ch.Table.Family]
		if !known || ch.Hooknum == nil || *ch.Hooknum != *nftables.ChainHookForward || ch.Type != nftables.ChainTypeFilter {
			continue
		}
		b := baseChain{table: family.name + " " + ch.Table.Name, name: ch.Name, families: family.families, policy: accept}
		if ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop {
			b.policy = drop
		}
		b.rules = nftReader{conn: c, table: ch.Table}.rules
		b.docker = slices.ContainsFunc(all, func(o *nftables.Chain) bool {
			return o.Name == dockerUser && o.Table.Name == ch.Table.Name && o.Table.Family == ch.Table.Family
		})
		chains = append(chains, b)
	}
	return chains, nil
}

// nftReader reads rules of one table.
type nftReader struct {
	conn  *nftables.Conn
	table *nftables.Table
}

func (n nftReader) rules(chain string) ([]rule, error) {
	found, err := n.conn.GetRules(n.table, &nftables.Chain{Name: chain, Table: n.table})
	if err != nil {
		return nil, err
	}
	rules := make([]rule, 0, len(found))
	for _, f := range found {
		m := matcher{nftReader: n, sources: map[uint32]any{}}
		for _, e := range f.Exprs {
			m.read(e)
		}
		rules = append(rules, m.rule)
	}
	return rules, nil
}

// matcher reads the expressions of one rule: loads into registers, and
// comparisons of what was loaded.
type matcher struct {
	nftReader
	rule
	sources map[uint32]any // by register: what was loaded, an *expr.Meta or an address
}

// address is a source or destination address in a register.
type address struct {
	length int // bytes, of the whole address
	mask   []byte
	least  []byte // what it was compared with by >=, before <= makes that a range
}

func (m *matcher) read(e expr.Any) {
	switch e := e.(type) {
	case *expr.Counter, *expr.Log, *expr.Immediate:
	case *expr.Meta:
		m.sources[e.Register] = e
	case *expr.Payload:
		m.sources[e.DestRegister] = addressOf(e)
	case *expr.Bitwise:
		if a, ok := m.sources[e.SourceRegister].(address); ok {
			a.mask = e.Mask
			m.sources[e.DestRegister] = a
		}
	case *expr.Cmp:
		m.compare(e)
	case *expr.Range:
		m.conditional = true
		if a, ok := m.sources[e.Register].(address); ok && e.Op == expr.CmpOpEq {
			m.addSpan(a, e.FromData, e.ToData)
		}
	case *expr.Lookup:
		m.conditional = true
		if !e.Invert {
			m.lookup(e)
		}
	case *expr.Verdict:
		m.decide(e)
	case *expr.Reject:
		m.verdict = drop
	case *expr.Target:
		if e.Name == "REJECT" {
			m.verdict = drop
		}
	default:
		m.conditional = true
	}
}

// addressOf says whether a payload is an IP address: by its place in the
// header (RFC 791, RFC 8200). A prefix of whole bytes is loaded as such.
func addressOf(p *expr.Payload) any {
	if p.Base != expr.PayloadBaseNetworkHeader {
		return nil
	}
	switch {
	case (p.Offset == 12 || p.Offset == 16) && p.Len <= 4:
		return address{length: 4}
	case (p.Offset == 8 || p.Offset == 24) && p.Len <= 16:
		return address{length: 16}
	}
	return nil
}

func (m *matcher) compare(e *expr.Cmp) {
	switch source := m.sources[e.Register].(type) {
	case *expr.Meta:
		if source.Key == expr.MetaKeyNFPROTO && e.Op == expr.CmpOpEq {
			m.family = map[byte]byte{unix.NFPROTO_IPV4: 4, unix.NFPROTO_IPV6: 6}[first(e.Data)]
			return
		}
		if isIfname(source) && e.Op == expr.CmpOpEq {
			m.ifnames = append(m.ifnames, ifnameOf(e.Data))
		}
	case address:
		m.compareAddress(e, source)
	}
	m.conditional = true
}

func (m *matcher) compareAddress(e *expr.Cmp, a address) {
	switch e.Op {
	case expr.CmpOpEq:
		if p, ok := a.prefix(e.Data); ok {
			m.spans = append(m.spans, spanOf(p))
		}
	case expr.CmpOpGte:
		a.least = e.Data
		m.sources[e.Register] = a
	case expr.CmpOpLte:
		m.addSpan(a, a.least, e.Data)
	}
}

func first(b []byte) byte {
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

func isIfname(m *expr.Meta) bool { return m.Key == expr.MetaKeyIIFNAME || m.Key == expr.MetaKeyOIFNAME }

// ifnameOf reads a name, which is complete if there is a zero behind it.
func ifnameOf(data []byte) string {
	name, _, complete := bytes.Cut(data, []byte{0})
	if complete || len(data) == unix.IFNAMSIZ {
		return string(name)
	}
	return string(name) + "*"
}

// prefix returns what the compared bytes stand for.
func (a address) prefix(data []byte) (netip.Prefix, bool) {
	length := len(data) * 8
	if a.mask != nil {
		length = maskLength(a.mask)
	}
	full := make([]byte, a.length)
	copy(full, data)
	addr, ok := netip.AddrFromSlice(full)
	return netip.PrefixFrom(addr, length), ok && len(data) <= a.length && length <= addr.BitLen()
}

// maskLength returns the prefix length of a netmask.
func maskLength(mask []byte) (length int) {
	for _, b := range mask {
		length += bits.OnesCount8(b)
	}
	return length
}

func (m *matcher) addSpan(a address, from, to []byte) {
	f, fok := netip.AddrFromSlice(from)
	t, tok := netip.AddrFromSlice(to)
	if fok && tok && len(from) == a.length && len(to) == a.length {
		m.spans = append(m.spans, span{f, t})
	}
}

// lookup reads the set, or the keys of the map, that the rule looks into.
func (m *matcher) lookup(e *expr.Lookup) {
	source := m.sources[e.SourceRegister]
	meta, isMeta := source.(*expr.Meta)
	a, isAddress := source.(address)
	if !isAddress && (!isMeta || !isIfname(meta)) {
		return
	}
	set, err := m.conn.GetSetByName(m.table, e.SetName)
	if err != nil {
		return // without what it holds, the rule mentions nothing
	}
	elements, err := m.conn.GetSetElements(set)
	if err != nil {
		return
	}
	if e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT {
		m.verdict = call // of a verdict map, to one place or another
	}
	for i, el := range elements {
		switch {
		case isMeta:
			m.ifnames = append(m.ifnames, ifnameOf(el.Key))
		case el.IntervalEnd:
		case set.Interval:
			m.addSpan(a, el.Key, intervalEnd(elements, i))
		default:
			m.addSpan(a, el.Key, el.Key)
		}
	}
}

// intervalEnd returns the end of the interval that begins at element i: the
// least end above it, which itself is not part of the interval, or the highest
// address.
func intervalEnd(elements []nftables.SetElement, i int) []byte {
	var end []byte
	for _, el := range elements {
		if el.IntervalEnd && bytes.Compare(el.Key, elements[i].Key) > 0 && (end == nil || bytes.Compare(el.Key, end) < 0) {
			end = el.Key
		}
	}
	if a, ok := netip.AddrFromSlice(end); ok {
		return a.Prev().AsSlice()
	}
	return bytes.Repeat([]byte{0xff}, len(elements[i].Key))
}

func (m *matcher) decide(v *expr.Verdict) {
	switch v.Kind {
	case expr.VerdictAccept:
		m.verdict = accept
	case expr.VerdictDrop, expr.VerdictStop:
		m.verdict = drop
	case expr.VerdictReturn:
		m.verdict = leave
	case expr.VerdictJump:
		m.verdict, m.target = call, v.Chain
	case expr.VerdictGoto:
		m.verdict, m.target = follow, v.Chain
	default: // a queue decides elsewhere
		m.conditional = true
	}
}
