// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"
	"slices"
	"strings"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/ipam"
)

// Facts are all records, the addresses they hold, the addresses that were
// released and when, and the configuration last seen.
type Facts struct {
	// Records live in one slice, and the map leads to their place: a short-
	// lived process replays thousands of them, and one allocation for all is
	// what makes that cheap.
	index map[string]int32 // by label
	slots []slot
	holes []int32 // places in slots without a record

	scopes map[scope]*ipam.Usage
	// expected is how many entries Expect announced, for the first scope: most
	// journals have one.
	expected int
	room     addrRoom

	config   string
	configAt int64
}

// slot is the place of one record, in fewer bytes than a Record: touching new
// memory is the largest part of what a replay costs. label is the key as text,
// a part of the entry that made the record; index and Usage share it.
type slot struct {
	label                   string // "": no record
	addrs                   []netip.Addr
	detail                  string
	since, created, suspect int64
	phase                   Phase
	ipam                    bool // kind IPAM; otherwise Veth
}

func (s *slot) kind() Kind {
	if s.ipam {
		return IPAM
	}
	return Veth
}

func (s *slot) scope() scope {
	network, _, _ := strings.Cut(s.label, "/")
	return scopeOf(s.kind(), network)
}

func (s *slot) record() Record {
	return Record{
		Key: keyOf(s.label), Kind: s.kind(), Phase: s.phase,
		Since: s.since, Created: s.created, Suspect: s.suspect,
		Addresses: s.addrs, detail: s.detail,
	}
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
	return &Facts{index: map[string]int32{}, scopes: map[scope]*ipam.Usage{}}
}

// Expect makes room for this many more entries. It changes nothing but the
// speed of applying them.
func (f *Facts) Expect(entries int) {
	if len(f.index) == 0 {
		f.index = make(map[string]int32, entries)
	}
	f.slots = slices.Grow(f.slots, entries)
	f.expected = entries
	f.room.expect(entries)
}

// Get returns the record of a key.
func (f *Facts) Get(k attach.Key) (Record, bool) {
	i, ok := f.index[k.String()]
	if !ok {
		return Record{}, false
	}
	return f.slots[i].record(), true
}

// Siblings yields the other records of the key's container, in no particular
// order.
func (f *Facts) Siblings(k attach.Key, yield func(Record) bool) {
	part := "/" + k.ContainerID + "/"
	label := k.String()
	for i := range f.slots {
		if s := &f.slots[i]; s.label != label && strings.Contains(s.label, part) && !yield(s.record()) {
			return
		}
	}
}

// Len returns the number of records.
func (f *Facts) Len() int { return len(f.index) }

// Each yields every record in no particular order. It is cheaper than Records.
func (f *Facts) Each(yield func(Record) bool) {
	for i := range f.slots {
		if s := &f.slots[i]; s.label != "" && !yield(s.record()) {
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
	order := make([]int32, 0, len(f.index))
	for i := range f.slots {
		if f.slots[i].label != "" {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return strings.Compare(f.slots[a].label, f.slots[b].label)
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
	u := f.scopes[s]
	if u == nil {
		u = ipam.NewUsage()
		u.Grow(f.expected)
		f.expected = 0
		s.network = strings.Clone(s.network)
		f.scopes[s] = u
	}
	return u
}

// Config returns the effective network configuration that was journaled last,
// raw JSON; "" if none was.
func (f *Facts) Config() string { return f.config }
