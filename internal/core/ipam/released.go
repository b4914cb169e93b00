// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"
)

// release is one entry of the queue of released addresses.
type release struct {
	addr netip.Addr
	at   int64  // unix ns
	seq  uint64 // increases along the queue; never reused
	dead bool   // taken again; removed when the queue is swept
}

// queue holds the released addresses, oldest first.
//
// Invariants: seq strictly increases and at never decreases along entries; an
// address is in index exactly if it has one live entry, whose seq index holds.
type queue struct {
	entries []release
	index   map[netip.Addr]uint64
	seq     uint64 // of the next entry
}

func (q *queue) len() int { return len(q.index) }

func (q *queue) has(a netip.Addr) bool {
	if len(q.index) == 0 {
		return false
	}
	_, ok := q.index[a]
	return ok
}

// push appends a. A time before that of an earlier entry means that the clock
// was set back: what was released before cannot have been released later, so
// the earlier entries move to this time. Otherwise they would seem to cool for
// as long as the clock was wrong.
func (q *queue) push(a netip.Addr, at int64) {
	q.remove(a)
	for i := len(q.entries) - 1; i >= 0 && q.entries[i].at > at; i-- {
		q.entries[i].at = at
	}
	if q.index == nil {
		q.index = make(map[netip.Addr]uint64)
	}
	q.index[a] = q.seq
	q.entries = append(q.entries, release{addr: a, at: at, seq: q.seq})
	q.seq++
}

// remove takes a out, wherever it is in the queue. The entry stays as a dead
// one until dead ones are the majority, so that the cost is amortised.
func (q *queue) remove(a netip.Addr) bool {
	if !q.has(a) {
		return false
	}
	q.entries[q.from(q.index[a])].dead = true
	delete(q.index, a)
	if dead := len(q.entries) - len(q.index); dead > len(q.index)+16 {
		q.entries = slices.DeleteFunc(q.entries, func(r release) bool { return r.dead })
	}
	return true
}

// from returns the position of the first entry whose seq is at least seq.
func (q *queue) from(seq uint64) int {
	i, _ := slices.BinarySearchFunc(q.entries, seq, func(r release, seq uint64) int {
		switch {
		case r.seq < seq:
			return -1
		case r.seq > seq:
			return 1
		}
		return 0
	})
	return i
}

// oldest returns the live entry at the head.
func (q *queue) oldest() (release, bool) {
	for len(q.entries) > 0 && q.entries[0].dead {
		q.entries = q.entries[1:]
	}
	if len(q.entries) == 0 {
		return release{}, false
	}
	return q.entries[0], true
}

// span returns the nanoseconds from the oldest release to the last pushed one.
// The difference of two int64 always fits an uint64.
func (q *queue) span() uint64 {
	head, ok := q.oldest()
	if !ok {
		return 0
	}
	return uint64(q.entries[len(q.entries)-1].at) - uint64(head.at)
}

// memory bounds the queue of releases.
type memory struct {
	keep int    // entries kept whatever their age
	age  uint64 // ns; beyond keep, an entry this much older than the newest goes
	most int    // entries kept at most
}

// defaultMemory keeps 4,096 releases: more than most pools have addresses, and
// few enough to replay in a fraction of a millisecond. A burst keeps more: a
// cool-down of one hour is honoured at 18 releases a second, and one of ten
// minutes at the 109 a second that are about what one node can do.
var defaultMemory = memory{keep: 4096, age: 3600e9, most: 65536}

func (m memory) exceededBy(q *queue) bool {
	n := q.len()
	return n > m.most || (n > m.keep && q.span() > m.age)
}

// cooling reports whether an address released at this time must rest on. A
// release in the future rests: the clock was set back, and nobody knows how
// long ago it was.
func cooling(at, now, cooldown int64) bool {
	if cooldown <= 0 {
		return false
	}
	return at > now || uint64(now)-uint64(at) < uint64(cooldown)
}
