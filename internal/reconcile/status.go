// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"weft.dev/weft/internal/core/delta"
)

// Status is the state of one kind.
type Status struct {
	Kind    string
	Closed  bool // not opened yet: nothing of the kind is read or written
	Desired int
	Pending int // operations that are due, Failing and Awaiting included
	Failing []Failing

	Awaiting []Failing // those that have nothing to do but wait (see the interface)

	InSyncSince time.Time // zero: not in sync
	BehindSince time.Time // when the oldest change that is not applied yet was first tried; zero: all are
	LastError   error     // stays when it is over
	LastErrorAt time.Time

	LastResync time.Time
	ResyncTook time.Duration
}

// Failing is one operation that failed, or awaits something, and is tried again.
type Failing struct {
	Object   string     // such as "route 10.42.3.0/24"; the kind, if it cannot be observed
	Verb     delta.Verb // "observe", if it cannot be observed
	Err      error      // of the last attempt
	Attempts int        // in a row
	Since    time.Time  // of the first of them
	Next     time.Time  // of the next one
}

// State says how an object fares.
type State string

// States.
const (
	InSync  State = "in sync"
	Pending State = "pending" // not acknowledged by the kernel yet, or awaiting something
	Failed  State = "failing" // the last attempt failed
)

// Object is one desired object.
type Object struct {
	Kind       string
	Key, Value any    // of the Table's types
	Origin     string // the object that asks for it
	State      State
	Err        error // of Failed; of Pending: what is awaited, if anything
}

// Status returns the state of each kind, in the order of the Tables.
func (r *Reconciler) Status() []Status {
	list := make([]Status, len(r.kinds))
	for i, k := range r.kinds {
		list[i] = k.status()
	}
	return list
}

// Objects returns the desired objects of a kind, ascending by key.
func (r *Reconciler) Objects(kind string) []Object {
	for _, k := range r.kinds {
		if k.Name() == kind {
			return k.objects()
		}
	}
	return nil
}

func (f *failure) failing(object string) Failing {
	return Failing{Object: object, Verb: f.verb, Err: f.err, Attempts: f.attempts, Since: f.since, Next: f.next}
}

// finish ends a Step. It returns when the next one is due, zero for never.
func (t *Table[K, V]) finish(now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return time.Time{}
	}
	t.judge(now)
	switch {
	case !t.inSync():
		t.syncedAt = time.Time{}
	case t.syncedAt.IsZero():
		t.syncedAt = now
	}
	if t.inSync() {
		t.behindAt = time.Time{}
	}
	due := t.readDue()
	if due.IsZero() {
		return now
	}
	if t.reads.known {
		for _, f := range t.failures {
			due = earliest(due, f.next)
		}
	}
	return due
}

func (t *Table[K, V]) inSync() bool {
	return t.open && t.reads.known && t.reading.err == nil && t.tracker.InSync()
}

func (t *Table[K, V]) settled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.reads
	return t.inSync() && !r.requested && !r.unclear && r.doubted.IsZero() && len(t.noticed) == 0
}

// Settled returns nil if the objects of all keys are as desired, there or not
// there; otherwise what is in the way of that, or why it is not known. Other
// objects do not count.
func (t *Table[K, V]) Settled(keys ...K) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r := &t.reads; {
	case t.reading.err != nil:
		return t.reading.err
	case !t.open || !r.known || r.requested || r.unclear:
		return fmt.Errorf("%s: to be read from the kernel", t.kind)
	}
	for _, op := range t.tracker.Pending() {
		if !slices.Contains(keys, op.Key) {
			continue
		}
		if f := t.failures[op.Key]; f != nil {
			return fmt.Errorf("%s %s: %w", op.Verb, t.describe(op.Key), f.err)
		}
		return fmt.Errorf("%s %s: not done yet", op.Verb, t.describe(op.Key))
	}
	for _, k := range keys {
		if _, doubtful := t.noticed[k]; doubtful || !t.inScope(k) {
			return fmt.Errorf("%s: to be read from the kernel", t.describe(k))
		}
	}
	return nil
}

func (t *Table[K, V]) status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{
		Kind: t.kind, Closed: !t.open,
		LastError: t.lastErr, LastErrorAt: t.lastAt,
		LastResync: t.reads.at, ResyncTook: t.reads.took,
	}
	s.Desired, s.Pending = t.tracker.Len()
	if t.inSync() {
		s.InSyncSince = t.syncedAt
	}
	s.BehindSince = t.behindSince()
	if t.reading.err != nil {
		s.Failing = append(s.Failing, t.reading.failing(t.kind))
	}
	for _, k := range slices.SortedFunc(maps.Keys(t.failures), K.Compare) {
		if f := t.failures[k]; f.awaits {
			s.Awaiting = append(s.Awaiting, f.failing(t.describe(k)))
		} else {
			s.Failing = append(s.Failing, f.failing(t.describe(k)))
		}
	}
	return s
}

// behindSince returns the time of the oldest change that is not applied. What
// failed says it by itself; what no Step has come to yet waits since the first
// Step that found something to do.
func (t *Table[K, V]) behindSince() time.Time {
	if !t.open || t.inSync() {
		return time.Time{}
	}
	var since time.Time
	if t.reading.err != nil {
		since = t.reading.since
	}
	for _, f := range t.failures {
		since = earliest(since, f.since)
	}
	if _, pending := t.tracker.Len(); pending > len(t.failures) || since.IsZero() {
		since = earliest(since, t.behindAt)
	}
	return since
}

func (t *Table[K, V]) objects() []Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	type entry struct {
		key   K
		value V
	}
	desired, _ := t.tracker.Len()
	entries := make([]entry, 0, desired)
	for k, v := range t.tracker.Desired() {
		entries = append(entries, entry{k, v})
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.key.Compare(b.key) })
	pending := map[K]bool{}
	for _, op := range t.tracker.Pending() {
		pending[op.Key] = true
	}

	list := make([]Object, len(entries))
	for i, e := range entries {
		o := Object{Kind: t.kind, Key: e.key, Value: e.value, Origin: t.origins[e.key], State: InSync}
		if f := t.failures[e.key]; f != nil {
			o.State, o.Err = Failed, f.err
			if f.awaits {
				o.State = Pending
			}
		} else if pending[e.key] || !t.reads.known {
			o.State = Pending
		}
		list[i] = o
	}
	return list
}
