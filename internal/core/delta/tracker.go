// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"iter"
	"maps"
	"slices"
)

// Key orders operations.
type Key[K any] interface {
	comparable
	Compare(K) int
}

// Verb is what an operation does.
type Verb string

// Verbs.
const (
	Add    Verb = "add"
	Change Verb = "change"
	Delete Verb = "delete"
)

// Op is one operation that is due.
type Op[K any, V any] struct {
	Verb Verb
	Key  K
	Want V // of Add and Change
	Have V // of Change and Delete
}

// Tracker compares desired with observed. The zero value is empty and ready.
type Tracker[K Key[K], V comparable] struct {
	desired, observed map[K]V
	pending           map[K]struct{}
}

// Want makes v the desired value of k.
func (t *Tracker[K, V]) Want(k K, v V) {
	if t.desired == nil {
		t.desired = map[K]V{}
	}
	t.desired[k] = v
	t.judge(k)
}

// Unwant makes k not desired.
func (t *Tracker[K, V]) Unwant(k K) {
	delete(t.desired, k)
	t.judge(k)
}

// Observe replaces everything that was observed. The map passes to the
// Tracker.
func (t *Tracker[K, V]) Observe(all map[K]V) {
	t.observed = all
	t.pending = nil
	for k := range t.desired {
		t.judge(k)
	}
	for k := range t.observed {
		if _, wanted := t.desired[k]; !wanted {
			t.judge(k)
		}
	}
}

// Done records that an operation has happened.
func (t *Tracker[K, V]) Done(op Op[K, V]) {
	if op.Verb == Delete {
		delete(t.observed, op.Key)
	} else {
		if t.observed == nil {
			t.observed = map[K]V{}
		}
		t.observed[op.Key] = op.Want
	}
	t.judge(op.Key)
}

// judge puts k among the pending keys, or takes it out.
func (t *Tracker[K, V]) judge(k K) {
	want, wanted := t.desired[k]
	have, there := t.observed[k]
	if wanted == there && want == have {
		delete(t.pending, k)
		if len(t.pending) == 0 {
			t.pending = nil // to iterate over a map costs as much as it ever held
		}
		return
	}
	if t.pending == nil {
		t.pending = map[K]struct{}{}
	}
	t.pending[k] = struct{}{}
}

// Pending returns the operations that are due, ascending by key.
func (t *Tracker[K, V]) Pending() []Op[K, V] {
	if len(t.pending) == 0 {
		return nil
	}
	ops := make([]Op[K, V], 0, len(t.pending))
	for k := range t.pending {
		want, wanted := t.desired[k]
		have, there := t.observed[k]
		op := Op[K, V]{Key: k, Want: want, Have: have}
		switch {
		case !there:
			op.Verb = Add
		case wanted:
			op.Verb = Change
		default:
			op.Verb = Delete
		}
		ops = append(ops, op)
	}
	slices.SortFunc(ops, func(a, b Op[K, V]) int { return a.Key.Compare(b.Key) })
	return ops
}

// InSync reports whether nothing is due.
func (t *Tracker[K, V]) InSync() bool { return len(t.pending) == 0 }

// Desired iterates over what is desired, in no order.
func (t *Tracker[K, V]) Desired() iter.Seq2[K, V] { return maps.All(t.desired) }

// Observed returns what was observed of k.
func (t *Tracker[K, V]) Observed(k K) (V, bool) {
	v, there := t.observed[k]
	return v, there
}

// Len returns how many keys are desired, and how many are pending.
func (t *Tracker[K, V]) Len() (desired, pending int) { return len(t.desired), len(t.pending) }
