// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/ipam/index"
)

// Facts are all records, the addresses they hold, the addresses that were
// released and when, and the configuration last seen.
type Facts struct {
	// Records live in one slice, and the index leads to their place: a short-
	// lived process replays thousands of them, and touching new memory is a
	// large part of what that costs.
	index index.Index // by label, hashed with seed
	seed  maphash.Seed
	slots []slot
	holes []int32 // places in slots without a record

	scopes map[scope]*ipam.Usage
	recent struct { // the one that was changed last, which is usually the next
		scope scope
		usage *ipam.Usage
	}
	// expected is how many entries Expect announced, for the first scope: most
	// journals have one.
	expected int
	room     []netip.Addr // for the addresses of the entry that is being applied

	config   string
	configAt int64
}

// slot is the place of one record, in fewer bytes than a Record: few records
// of a long journal are ever looked at, and those are read from their text
// again.
type slot struct {
	// text is the entry that made the record, from the key on, which is what
	// the entries that make one have in common: K <kind> A {detail}. It has
	// been parsed without error before. "": no record.
	text                    string
	since, created, suspect int64
	keyLen                  int32 // length of K
	phase                   Phase
	ipam                    bool // kind IPAM; otherwise Veth
}

// label is the key as text. Usage shares its memory.
func (s *slot) label() string { return s.text[:s.keyLen] }

func (s *slot) kind() Kind {
	if s.ipam {
		return IPAM
	}
	return Veth
}

func (s *slot) scope() scope {
	network, _, _ := strings.Cut(s.label(), "/")
	return scopeOf(s.kind(), network)
}

func (s *slot) record() Record {
	p := s.afterKind()
	return Record{
		Key: keyOf(s.label()), Kind: s.kind(), Phase: s.phase,
		Since: s.since, Created: s.created, Suspect: s.suspect,
		Addresses: p.addrs(nil), detail: p.rest,
	}
}

func (s *slot) addresses() []netip.Addr {
	p := s.afterKind()
	return p.addrs(nil)
}

func (s *slot) afterKind() parser {
	p := parser{rest: s.text[s.keyLen+1:]}
	p.next()
	return p
}

// keyOf returns the parts of a label, which has been parsed before.
func keyOf(label string) attach.Key {
	i, j := strings.IndexByte(label, '/'), strings.LastIndexByte(label, '/')
	return attach.Key{Network: label[:i], ContainerID: label[i+1 : j], Ifname: label[j+1:]}
}

// scope is a space of addresses in which each has one holder. Its network is
// "" for kind Veth.
type scope struct {
	kind    Kind
	network string
}

func scopeOf(kind Kind, network string) scope {
	if kind == Veth {
		network = ""
	}
	return scope{kind, network}
}

// New returns facts without a record.
func New() *Facts {
	return &Facts{seed: maphash.MakeSeed(), scopes: map[scope]*ipam.Usage{}}
}

// Expect makes room for this many more entries. It changes nothing but the
// speed of applying them.
func (f *Facts) Expect(entries int) {
	f.index.Grow(f.index.Len() + entries)
	f.slots = slices.Grow(f.slots, entries)
	f.expected = entries
}

func (f *Facts) hash(label string) uint32 { return uint32(maphash.String(f.seed, label)) }

// find returns the place of the record with this label and hash.
func (f *Facts) find(label string, hash uint32) (int32, bool) {
	return f.index.Find(hash, func(i int32) bool { return f.slots[i].label() == label })
}

// Get returns the record of a key.
func (f *Facts) Get(k attach.Key) (Record, bool) {
	label := k.String()
	i, ok := f.find(label, f.hash(label))
	if !ok {
		return Record{}, false
	}
	return f.slots[i].record(), true
}

// Siblings yields the other records of the key's container, in no particular
// order.
func (f *Facts) Siblings(k attach.Key, yield func(Record) bool) {
	label := k.String()
	for i := range f.slots {
		s := &f.slots[i]
		_, rest, _ := strings.Cut(s.label(), "/")
		rest, ours := strings.CutPrefix(rest, k.ContainerID)
		if ours && strings.HasPrefix(rest, "/") && s.label() != label && !yield(s.record()) {
			return
		}
	}
}

// Len returns the number of records.
func (f *Facts) Len() int { return f.index.Len() }

// Each yields every record in no particular order. It is cheaper than Records.
func (f *Facts) Each(yield func(Record) bool) {
	for i := range f.slots {
		if s := &f.slots[i]; s.text != "" && !yield(s.record()) {
			return
		}
	}
}

// Records returns all records, sorted by the text of their key.
func (f *Facts) Records() []Record {
	records := make([]Record, 0, f.Len())
	for _, i := range f.order() {
		records = append(records, f.slots[i].record())
	}
	return records
}

// order returns the places of all records, sorted by label.
func (f *Facts) order() []int32 {
	order := make([]int32, 0, f.Len())
	for i := range f.slots {
		if f.slots[i].text != "" {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return strings.Compare(f.slots[a].label(), f.slots[b].label())
	})
	return order
}

// Usage returns who holds which address of a scope, and what was released in
// it. The network matters for kind IPAM only. It is to be read and asked for
// free addresses; what changes it is Apply.
func (f *Facts) Usage(kind Kind, network string) *ipam.Usage {
	if u := f.scopes[scopeOf(kind, network)]; u != nil {
		return u
	}
	// Not kept: looking at facts does not change them.
	return ipam.NewUsage()
}

// usage returns the same for writing.
func (f *Facts) usage(s scope) *ipam.Usage {
	if f.recent.usage != nil && f.recent.scope == s {
		return f.recent.usage
	}
	u := f.scopes[s]
	if u == nil {
		u = ipam.NewUsage()
		u.Grow(f.expected)
		f.expected = 0
		f.scopes[scope{s.kind, strings.Clone(s.network)}] = u
	}
	f.recent.scope, f.recent.usage = scope{s.kind, strings.Clone(s.network)}, u
	return u
}

// Config returns the effective network configuration that was journaled last,
// raw JSON; "" if none was.
func (f *Facts) Config() string { return f.config }
