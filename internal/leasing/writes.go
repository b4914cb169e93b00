// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
)

// outcome is what is known of a write that the Store does not show yet.
type outcome int

const (
	written      outcome = iota // created or replaced
	inDoubt                     // a create without an answer: it may have happened
	likelyOurs                  // the same, and a repetition found that there is such a lease
	taken                       // a create came too late
	conflict                    // a replace was based on an old version
	deleted                     // or found gone
	mayBeDeleted                // a delete without an answer: it may have happened
)

// write is the last write to a lease.
type write struct {
	outcome outcome
	lease   cluster.Lease // as it was written; of a delete, what was deleted
	at      time.Time
}

// writes are the writes that the Store does not show yet, by lease name.
type writes map[string]write

// seen forgets the write when the Store has shown a change of the lease. A
// deletion counts as seen only when the lease with that UID is gone: until then
// the change may be an earlier one.
func (w writes) seen(name string, shown cluster.Lease, there bool) {
	one := w[name]
	if one.deletes() && there && shown.UID == one.lease.UID {
		return
	}
	delete(w, name)
}

// expired forgets writes that a Store with contact since then has not shown in
// time, and returns their names: they had no effect, or one that was undone.
// Deletions are only tried again.
func (w writes) expired(now, contact time.Time) []string {
	var names []string
	for name, one := range w {
		from := one.at
		if contact.After(from) {
			from = contact
		}
		if now.Sub(from) < patience {
			continue
		}
		if one.deletes() {
			w[name] = write{mayBeDeleted, one.lease, one.at}
			continue
		}
		delete(w, name)
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (one write) deletes() bool { return one.outcome == deleted || one.outcome == mayBeDeleted }

// isGone reports whether this node has tried to delete the lease.
func (w writes) isGone(l cluster.Lease) bool {
	one, pending := w[l.Name()]
	return pending && one.deletes() && one.lease.UID == l.UID
}

// settled reports whether the lease may be written: nothing is known of it that
// the Store does not show. A create in doubt may be repeated.
func (w writes) settled(name string) bool {
	one, pending := w[name]
	return !pending || one.outcome == inDoubt
}

// subnets returns the blocks whose last write had that outcome, ascending.
func (w writes) subnets(o outcome) []netip.Prefix {
	var list []netip.Prefix
	for _, one := range w {
		if one.outcome == o {
			list = append(list, one.lease.Subnet)
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}
