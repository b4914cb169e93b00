// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sync"
	"time"

	"weft.dev/weft/internal/core/delta"
)

// Table keeps the objects of one kind as they are desired. Open, Want and Unwant
// are for the goroutine that calls the Reconciler's Step, which does what they
// ask for.
type Table[K delta.Key[K], V comparable] struct {
	kind       string
	driver     Driver[K, V]
	describe   func(K) string
	dependents []Kind

	// mu is not held while the driver works: whoever wants something, or looks,
	// does not wait for the kernel.
	mu      sync.Mutex
	tracker delta.Tracker[K, V]
	origins map[K]string // of every desired key
	open    bool
	scope   func(K) bool // the keys that are read and written; nil: all

	failures map[K]*failure // of pending keys only
	reading  failure        // of the last read; err is nil if it succeeded
	reads    reads
	retry    bool // what awaits something is due
	busy     bool // the driver works

	noticed map[K]notice[V] // what contradicts the last observation, by key

	syncedAt time.Time // in sync since; zero: not in sync at the end of the last Step
	behindAt time.Time // when a Step first found something to do; zero: in sync since then
	lastErr  error
	lastAt   time.Time
}

// reads says when the driver is to be read.
type reads struct {
	known     bool      // the observation is one to build on: nothing is applied before
	requested bool      // to be read in the next Step
	doubted   time.Time // to be read then: an operation's outcome is not known; zero: no
	noticedAt time.Time // to be read then: notices contradict; zero: no
	unclear   bool      // a notice calls for reading whatever comes after it

	at   time.Time // of the last success
	took time.Duration
}

type notice[V any] struct {
	value V
	gone  bool
}

// NewTable returns a closed, empty Table. describe names an object for people,
// such as "route 10.42.3.0/24". dependents hold what may vanish with an object
// of this one.
func NewTable[K delta.Key[K], V comparable](
	kind string, driver Driver[K, V], describe func(K) string, dependents ...Kind,
) *Table[K, V] {
	return &Table[K, V]{
		kind: kind, driver: driver, describe: describe, dependents: dependents,
		origins: map[K]string{}, failures: map[K]*failure{},
	}
}

// Name returns the kind.
func (t *Table[K, V]) Name() string { return t.kind }

// Open starts reading and writing the keys in scope, nil meaning all. A key
// out of scope is neither seen nor changed, and must not be wanted. Open may be
// called again with a wider scope.
func (t *Table[K, V]) Open(scope func(K) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open, t.scope, t.reads.known = true, scope, false
}

// Want makes v the desired value of k; origin is the object that asks for it.
func (t *Table[K, V]) Want(k K, v V, origin string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tracker.Want(k, v)
	t.origins[k] = origin
	delete(t.failures, k)
}

// Unwant makes k not desired.
func (t *Table[K, V]) Unwant(k K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tracker.Unwant(k)
	delete(t.origins, k)
	delete(t.failures, k)
}

func (t *Table[K, V]) inScope(k K) bool { return t.scope == nil || t.scope(k) }

// request makes the next Step read the kernel.
func (t *Table[K, V]) request() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads.requested = true
	t.reading.next = time.Time{}
}

// invalidate forbids to build on what was observed.
func (t *Table[K, V]) invalidate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads.known = false
}

// tryAgain makes due what awaits something. It reports whether a Step is called
// for: while the driver works, something may just begin to wait.
func (t *Table[K, V]) tryAgain() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retry = t.busy || len(t.failures) > 0
	return t.retry
}

// notice takes in what the kernel said about one object. It reports whether a
// Step is called for. A key or value of another type, such as nil, says that
// anything may have changed.
//
// What is said while the driver works is mostly the echo of that work, in
// several parts. It is judged at the end of the Step, by the last part.
func (t *Table[K, V]) notice(key, value any, gone bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return false
	}
	k, isKey := key.(K)
	v, isValue := value.(V)
	if !isKey || !isValue && !gone {
		return t.setUnclear()
	}
	if !t.inScope(k) {
		return false
	}
	n := notice[V]{value: v, gone: gone}
	if !t.busy {
		if t.agrees(k, n) {
			delete(t.noticed, k)
			return false
		}
		if len(t.dependents) > 0 {
			// A device that went down is up again in the next notice, but its
			// routes are gone.
			return t.setUnclear()
		}
	}
	if t.noticed == nil {
		t.noticed = map[K]notice[V]{}
	}
	t.noticed[k] = n
	return !t.busy && t.reads.noticedAt.IsZero()
}

func (t *Table[K, V]) setUnclear() bool {
	news := !t.reads.unclear
	t.reads.unclear = true
	return news
}

func (t *Table[K, V]) agrees(k K, n notice[V]) bool {
	v, there := t.tracker.Observed(k)
	if n.gone || !there {
		return n.gone && !there
	}
	return v == n.value
}

// judge compares the notices that are kept with what is known by now, and sets
// the time to read if some contradict.
func (t *Table[K, V]) judge(now time.Time) {
	for k, n := range t.noticed {
		if t.agrees(k, n) {
			delete(t.noticed, k)
		}
	}
	switch {
	case len(t.noticed) == 0 && !t.reads.unclear:
		t.noticed = nil
		t.reads.noticedAt = time.Time{}
	case t.reads.noticedAt.IsZero():
		t.reads.noticedAt = latest(now.Add(settleTime), t.reads.at.Add(noticeInterval))
	}
}
