// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/core/delta"
)

// Updates returns what changed since it was called last.
func (m *Map) Updates() Updates {
	m.contend()
	var u Updates
	for _, t := range m.changed {
		m.updateLease(t, &u)
	}
	for _, mem := range m.changedMembers {
		m.updateMember(mem, &u)
	}
	m.changed, m.changedMembers = nil, nil
	m.updateOwn(&u)

	sortByKey(u.Links)
	sortByKey(u.Addresses)
	sortByKey(u.Neighbours)
	sortByKey(u.FDB)
	sortByKey(u.Routes)
	// Leases of one network address and different lengths have one gateway, and
	// a pod may have a lease of it. Only one of them stands; where it is another than before, there are two updates.
	u.Neighbours = slices.CompactFunc(u.Neighbours, func(a, b Update[NeighbourKey, Neighbour]) bool { return a.Key == b.Key })
	return u
}

// updateLease tells the difference that one lease makes by itself.
func (m *Map) updateLease(t *tracked, u *Updates) {
	was, is := t.told, footprint{}
	if t.gone {
		delete(m.leases, t.name)
	} else {
		is = m.place.footprint(&t.entry, m.judge(t))
		m.markMember(t.member)
	}
	t.told, t.marked = is, false
	for _, f := range families {
		m.tunnels[f] += count(is.uses(f)) - count(was.uses(f))
	}
	m.ownStale = m.ownStale || was.ownBlock() || is.ownBlock()

	oldRoute, oldWanted, had := was.routing()
	newRoute, newWanted, has := is.routing()
	u.Routes = tellBoth(u.Routes, oldRoute, oldWanted, had, newRoute, newWanted, has)

	oldNeighbour, oldEntry, had := was.neighbour()
	newNeighbour, newEntry, has := is.neighbour()
	u.Neighbours = tellBoth(u.Neighbours, oldNeighbour, oldEntry, had, newNeighbour, newEntry, has)
}

// updateMember tells the difference that the leases of a node make together,
// and forgets a node of which nothing is left.
func (m *Map) updateMember(mem *member, u *Updates) {
	mem.marked = false
	is := mem.destinations()
	for _, f := range families {
		u.FDB = tell(u.FDB, FDBKey{Dev: devices[f], MAC: mem.mac},
			Wanted[FDB]{Value: FDB{Dst: mem.told[f]}, Origin: mem.origin}, mem.told[f].IsValid(),
			Wanted[FDB]{Value: FDB{Dst: is[f]}, Origin: mem.origin}, is[f].IsValid())
	}
	mem.told = is
	if !mem.known && len(mem.leases) == 0 {
		delete(m.members, mem.name())
	}
}

// updateOwn tells the difference in the VXLAN devices and their addresses.
func (m *Map) updateOwn(u *Updates) {
	devs := m.place.devices([len(families)]bool{m.tunnels[ipv4] > 0, m.tunnels[ipv6] > 0})
	same := true
	for _, f := range families {
		_, has := m.links[LinkKey(devices[f])]
		same = same && has == devs[f]
	}
	if same && !m.ownStale {
		return
	}
	m.ownStale = false
	var own []*entry
	if mem := m.members[m.place.Node]; mem != nil {
		for _, t := range mem.leases {
			if t.told.ownBlock() {
				own = append(own, &t.entry)
			}
		}
	}
	links, addresses := m.place.own(devs, own)
	u.Links, u.Addresses = difference(m.links, links), difference(m.addresses, addresses)
	m.links, m.addresses = links, addresses
}

// tell appends the update from what there was of a key to what there is, if
// they differ.
func tell[K, V comparable](to []Update[K, V], key K, was Wanted[V], had bool, is Wanted[V], has bool) []Update[K, V] {
	switch {
	case has && (!had || was != is):
		return append(to, Update[K, V]{Key: key, Wanted: is})
	case had && !has:
		return append(to, Update[K, V]{Key: key, Gone: true})
	}
	return to
}

// tellBoth is tell where the key may have changed, too.
func tellBoth[K, V comparable](
	to []Update[K, V], oldKey K, was Wanted[V], had bool, newKey K, is Wanted[V], has bool,
) []Update[K, V] {
	if had && has && oldKey == newKey {
		return tell(to, newKey, was, true, is, true)
	}
	return tell(tell(to, oldKey, was, had, Wanted[V]{}, false), newKey, Wanted[V]{}, false, is, has)
}

// difference returns the updates that lead from was to is, in no order.
func difference[K, V comparable](was, is map[K]Wanted[V]) (updates []Update[K, V]) {
	for k, v := range is {
		old, had := was[k]
		updates = tell(updates, k, old, had, v, true)
	}
	for k, old := range was {
		if _, has := is[k]; !has {
			updates = tell(updates, k, old, true, Wanted[V]{}, false)
		}
	}
	return updates
}

// sortByKey puts what is gone after what has the same key and is not.
func sortByKey[K delta.Key[K], V any](updates []Update[K, V]) {
	slices.SortFunc(updates, func(a, b Update[K, V]) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(count(a.Gone), count(b.Gone)))
	})
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
