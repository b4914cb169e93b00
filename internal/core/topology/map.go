// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"reflect"
	"slices"
	"strings"

	"weft.dev/weft/internal/core/cluster"
)

// Map derives the same as Compute, step by step. It is not safe for concurrent
// use.
//
// Changes only mark what they concern; the next look at the result judges it.
// While no two leases conflict, each is judged by itself. While some do, all are
// compared again after a change.
type Map struct {
	place   place
	members map[string]*member
	leases  map[string]*tracked // by name; also those that are gone, until Updates

	roster    roster // all leases but those that are gone
	disputed  bool   // some in it may conflict; if not, none do
	contested bool   // rivals may have changed

	changed        []*tracked // those with a mark
	changedMembers []*member  // likewise

	// What Updates has told, besides the footprints of leases and members.
	links     map[LinkKey]Wanted[Link]
	addresses map[AddressKey]Wanted[Address]
	tunnels   [len(families)]int // leases that use the VXLAN device
	ownStale  bool               // links or addresses may differ from that
}

// tracked is a lease with what became of it.
type tracked struct {
	entry
	member *member
	rival  *entry    // the older lease with which this one conflicts
	told   footprint // by Updates
	marked bool
	gone   bool
}

// NewMap returns a Map of an empty cluster.
func NewMap() *Map {
	return &Map{members: map[string]*member{}, leases: map[string]*tracked{}}
}

// SetSelf changes this node's place.
func (m *Map) SetSelf(s Self) {
	if reflect.DeepEqual(s, m.place.Self) {
		return
	}
	m.place = newPlace(s)
	m.ownStale = true
	m.contest() // this node's own name is known
	for t := range m.roster.all {
		m.mark(t)
	}
}

// SetNode makes a node known, or unknown.
func (m *Map) SetNode(name string, known bool) {
	if mem := m.members[name]; mem == nil && !known || mem != nil && mem.known == known {
		return
	}
	mem := m.member(name)
	mem.known = known
	m.markMember(mem)
	m.contest()
	for _, t := range mem.leases {
		m.mark(t)
	}
}

// SetLease adds a lease or changes it.
func (m *Map) SetLease(l cluster.Lease) {
	name := l.Name()
	t := m.leases[name]
	switch {
	case t == nil:
		t = &tracked{entry: newEntry(name, l)}
		m.leases[t.name] = t
	case !t.gone && t.says(l):
		return
	case !t.gone:
		m.remove(t)
		fallthrough
	default:
		t.entry, t.gone = newEntry(name, l), false
	}
	m.insert(t)
}

// DeleteLease removes the lease of that name, if there is one.
func (m *Map) DeleteLease(name string) {
	if t := m.leases[name]; t != nil && !t.gone {
		m.remove(t)
		t.gone = true
	}
}

// Reach returns how each lease is reached, by name.
func (m *Map) Reach() []Reach {
	m.contend()
	reach := make([]Reach, 0, m.roster.len())
	for t := range m.roster.all {
		reach = append(reach, m.place.reach(&t.entry, m.judge(t)))
	}
	slices.SortFunc(reach, func(a, b Reach) int { return strings.Compare(a.Lease, b.Lease) })
	return reach
}

// Rejected returns the reasons of this node's own leases that are rejected, by
// lease name.
func (m *Map) Rejected() map[string]string {
	m.contend()
	rejected := map[string]string{}
	if mem := m.members[m.place.Node]; mem != nil {
		for _, t := range mem.leases {
			if v := m.judge(t); v.rejected {
				rejected[t.name] = v.reason
			}
		}
	}
	return rejected
}

func (m *Map) judge(t *tracked) verdict { return m.place.judge(&t.entry, t.member.known, t.rival) }

// insert takes a lease into the roster and into its node's leases.
func (m *Map) insert(t *tracked) {
	t.member = m.member(t.node)
	t.member.leases = append(t.member.leases, t)
	m.disputed = m.disputed || m.roster.rival(&t.entry) != nil
	m.roster.insert(t)
	m.contest()
	m.mark(t)
}

// remove undoes insert.
func (m *Map) remove(t *tracked) {
	m.contest()
	m.roster.remove(t)
	t.member.leases = slices.DeleteFunc(t.member.leases, func(other *tracked) bool { return other == t })
	m.markMember(t.member)
	m.mark(t)
	t.member, t.rival = nil, nil
}

func (m *Map) mark(t *tracked) {
	if !t.marked {
		t.marked = true
		m.changed = append(m.changed, t)
	}
}

// contest makes the leases compared again, if there is anything to compare.
func (m *Map) contest() { m.contested = m.contested || m.disputed }

// contend finds each lease's rival.
func (m *Map) contend() {
	if !m.contested {
		return
	}
	m.contested, m.disputed = false, false
	byAge := slices.SortedFunc(m.roster.all, func(a, b *tracked) int { return older(&a.entry, &b.entry) })
	var standing roster
	for _, t := range byAge {
		var rival *entry
		holder := standing.rival(&t.entry)
		flawed := t.flaw(t.member.known || t.node == m.place.Node) != ""
		switch {
		case holder != nil:
			rival = &holder.entry
		case !flawed:
			standing.insert(t)
		}
		// What conflicts with a flawed lease is not known: it does not stand.
		m.disputed = m.disputed || holder != nil || flawed
		if t.rival != rival {
			t.rival = rival
			m.mark(t)
		}
	}
}
