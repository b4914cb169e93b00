// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"weft.dev/weft/internal/core/delta"
)

// observing is the verb of a read that failed.
const observing delta.Verb = "observe"

// read reads the kernel if that is due.
func (t *Table[K, V]) read(now time.Time, p *Pass) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return
	}
	t.judge(now)
	if t.behindAt.IsZero() && !t.inSync() {
		t.behindAt = now
	}
	if due := t.readDue(); due.After(now) {
		return
	}
	if !t.reads.noticedAt.IsZero() {
		for _, d := range t.dependents {
			d.notice(nil, nil, false)
		}
	}
	t.reads.requested, t.reads.unclear, t.noticed = false, false, nil
	t.reads.doubted, t.reads.noticedAt = time.Time{}, time.Time{}

	t.busy = true
	t.mu.Unlock()
	start := time.Now() // the only use of the clock: how long it took
	all, err := t.driver.Observe()
	took := time.Since(start)
	t.mu.Lock()
	t.busy = false

	if err != nil {
		t.readFailed(fmt.Errorf("observe %s: %w", t.kind, err), now, p)
		return
	}
	if t.scope != nil {
		maps.DeleteFunc(all, func(k K, _ V) bool { return !t.scope(k) })
	}
	t.tracker.Observe(all)
	t.reading = failure{}
	t.reads.known, t.reads.at, t.reads.took = true, now, took
	p.change(t.kind).Recovered += t.forget()
}

// readFailed leaves what was observed before as it is.
func (t *Table[K, V]) readFailed(err error, now time.Time, p *Pass) {
	t.lastErr, t.lastAt = err, now
	t.reading.again(observing, err, t.kind, now)
	if t.reading.attempts == 1 {
		p.Failed = append(p.Failed, t.reading.failing(t.kind))
	}
}

// readDue returns when the kernel is to be read next.
func (t *Table[K, V]) readDue() time.Time {
	if !t.reads.known || t.reads.requested || t.reading.err != nil {
		return t.reading.next // zero unless the last read failed
	}
	due := t.reads.at.Add(resyncInterval + spread(t.kind, resyncInterval/4))
	return earliest(earliest(due, t.reads.doubted), t.reads.noticedAt)
}

// forget drops failures of keys that are pending no more, and returns how many
// there were, without those that only awaited something.
func (t *Table[K, V]) forget() (gone int) {
	if len(t.failures) == 0 {
		return 0
	}
	still := make(map[K]*failure, len(t.failures))
	for _, op := range t.tracker.Pending() {
		if f := t.failures[op.Key]; f != nil {
			still[op.Key] = f
		}
	}
	for k, f := range t.failures {
		if still[k] == nil && !f.awaits {
			gone++
		}
	}
	t.failures = still
	return gone
}

// apply carries out what is due: additions and changes, or deletions.
func (t *Table[K, V]) apply(now time.Time, deletions bool, p *Pass) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open || !t.reads.known {
		return
	}
	ops := t.due(now, deletions)
	t.retry = t.retry && deletions // what is said from now on is for the next Step
	if len(ops) == 0 {
		return
	}
	t.busy = true
	t.mu.Unlock()
	errs := t.driver.Apply(ops)
	t.mu.Lock()
	t.busy = false

	for i, op := range ops {
		t.record(op, errs[i], now, p)
	}
	for _, d := range t.dependents {
		d.invalidate()
	}
}

// due returns the operations that may be tried now, ascending by key.
func (t *Table[K, V]) due(now time.Time, deletions bool) []delta.Op[K, V] {
	return slices.DeleteFunc(t.tracker.Pending(), func(op delta.Op[K, V]) bool {
		f := t.failures[op.Key]
		return (op.Verb == delta.Delete) != deletions || f != nil && f.next.After(now) && (!f.awaits || !t.retry)
	})
}

func (t *Table[K, V]) record(op delta.Op[K, V], err error, now time.Time, p *Pass) {
	f := t.failures[op.Key]
	if err == nil {
		t.tracker.Done(op)
		c := p.change(t.kind)
		switch op.Verb {
		case delta.Add:
			c.Added++
		case delta.Change:
			c.Changed++
		case delta.Delete:
			c.Deleted++
		}
		if f != nil && !f.awaits {
			c.Recovered++
		}
		delete(t.failures, op.Key)
		return
	}
	if t.reads.doubted.IsZero() {
		t.reads.doubted = latest(now, t.reads.at.Add(doubtInterval))
	}
	if !awaits(err) {
		t.lastErr, t.lastAt = err, now
	}
	if f == nil || f.awaits != awaits(err) {
		f = &failure{}
		t.failures[op.Key] = f
	}
	object := t.describe(op.Key)
	f.again(op.Verb, err, object, now)
	switch {
	case f.attempts > 1:
	case f.awaits:
		p.Awaiting = append(p.Awaiting, f.failing(object))
	default:
		p.Failed = append(p.Failed, f.failing(object))
	}
}
