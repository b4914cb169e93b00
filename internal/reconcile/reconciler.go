// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"time"
)

// Kind is a Table of any type.
type Kind interface {
	Name() string

	read(now time.Time, p *Pass)
	apply(now time.Time, deletions bool, p *Pass)
	finish(now time.Time) (next time.Time)

	request()
	invalidate()
	tryAgain() bool
	notice(key, value any, gone bool) bool

	settled() bool
	status() Status
	objects() []Object
}

// Reconciler makes passes over Tables.
type Reconciler struct{ kinds []Kind }

// Pass is what one Step did.
type Pass struct {
	Next    time.Time // when the next Step is due; zero: not until something changes
	Changes []Change  // per kind, for those with any
	Failed  []Failing // what failed for the first time in a row

	Awaiting []Failing // what begins to await something
}

// Change counts what happened to one kind.
type Change struct {
	Kind                    string
	Added, Changed, Deleted int
	Recovered               int // objects that had failed before
}

// change returns the counts of a kind.
func (p *Pass) change(kind string) *Change {
	i := slices.IndexFunc(p.Changes, func(c Change) bool { return c.Kind == kind })
	if i < 0 {
		i = len(p.Changes)
		p.Changes = append(p.Changes, Change{Kind: kind})
	}
	return &p.Changes[i]
}

// New returns a Reconciler of Tables, each after those that it depends on.
func New(kinds ...Kind) *Reconciler { return &Reconciler{kinds: kinds} }

// Step makes one pass. Only one goroutine calls it; all other methods may be
// called at any time.
func (r *Reconciler) Step(now time.Time) Pass {
	var p Pass
	for _, k := range r.kinds {
		k.read(now, &p)
		k.apply(now, false, &p)
	}
	for _, k := range slices.Backward(r.kinds) {
		k.apply(now, true, &p)
	}
	for _, k := range r.kinds {
		p.Next = earliest(k.finish(now), p.Next)
	}
	p.Changes = slices.DeleteFunc(p.Changes, func(c Change) bool { return c == Change{Kind: c.Kind} })
	return p
}

// Settled reports whether the Tables of the kinds named, or all Tables, are open
// and in sync, and nothing gives reason to doubt it.
func (r *Reconciler) Settled(kinds ...string) bool {
	for _, k := range r.kinds {
		if (len(kinds) == 0 || slices.Contains(kinds, k.Name())) && !k.settled() {
			return false
		}
	}
	return true
}

// Resync makes the next Step read a kind from the kernel; "" means all.
func (r *Reconciler) Resync(kind string) {
	for _, k := range r.kinds {
		if kind == "" || kind == k.Name() {
			k.request()
		}
	}
}

// Retry says that what operations of a kind await may be gone: the next Step tries
// them. It reports whether a Step is called for.
func (r *Reconciler) Retry(kind string) (step bool) {
	for _, k := range r.kinds {
		if k.Name() == kind {
			step = k.tryAgain()
		}
	}
	return step
}

// Noticed takes in what the kernel said about one object of a kind: its value,
// or that it is gone. If that contradicts what was observed, the kind is read
// again, soon but not often; an echo of the Reconciler's own operations costs
// nothing. A nil key says that anything of the kind may have changed, an empty
// kind that everything may. Noticed reports whether a Step is called for.
func (r *Reconciler) Noticed(kind string, key, value any, gone bool) (step bool) {
	for _, k := range r.kinds {
		switch kind {
		case "":
			step = k.notice(nil, nil, false) || step
		case k.Name():
			return k.notice(key, value, gone)
		}
	}
	return step
}
