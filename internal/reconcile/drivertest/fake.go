// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"maps"
	"sync"

	"weft.dev/weft/internal/core/delta"
)

// Fault makes operations fail.
type Fault[K any, V any] struct {
	// Match chooses the operations; nil: all.
	Match func(delta.Op[K, V]) bool
	// Times is how often the fault strikes; 0: always.
	Times int
	// After: the operation has happened when it fails.
	After bool
	Err   error
}

// Fake is a driver of objects in memory. It is safe for concurrent use.
type Fake[K delta.Key[K], V comparable] struct {
	mu       sync.Mutex
	objects  map[K]V
	foreign  map[K]bool
	faults   []*Fault[K, V]
	unread   []error // of the next calls of Observe
	applied  []delta.Op[K, V]
	observed int
}

// NewFake returns a Fake without objects.
func NewFake[K delta.Key[K], V comparable]() *Fake[K, V] {
	return &Fake[K, V]{objects: map[K]V{}, foreign: map[K]bool{}}
}

// ForeignError is what an Add meets where there is something foreign.
type ForeignError struct{ Object string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("add %s: there is something that is not ours", e.Object)
}

// Observe implements reconcile.Driver.
func (f *Fake[K, V]) Observe() (map[K]V, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observed++
	if len(f.unread) > 0 {
		err := f.unread[0]
		f.unread = f.unread[1:]
		return nil, err
	}
	return maps.Clone(f.objects), nil
}

// Apply implements reconcile.Driver.
func (f *Fake[K, V]) Apply(ops []delta.Op[K, V]) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(ops))
	for i, op := range ops {
		f.applied = append(f.applied, op)
		fault := f.strike(op)
		if fault == nil || fault.After {
			errs[i] = f.carryOut(op)
		}
		if fault != nil && errs[i] == nil {
			errs[i] = fault.Err
		}
	}
	return errs
}

func (f *Fake[K, V]) carryOut(op delta.Op[K, V]) error {
	switch {
	case op.Verb == delta.Delete:
		delete(f.objects, op.Key)
	case f.foreign[op.Key]:
		return &ForeignError{Object: fmt.Sprint(op.Key)}
	default:
		f.objects[op.Key] = op.Want
	}
	return nil
}

// strike returns the first fault that hits the operation.
func (f *Fake[K, V]) strike(op delta.Op[K, V]) *Fault[K, V] {
	for i, fault := range f.faults {
		if fault.Match != nil && !fault.Match(op) {
			continue
		}
		if fault.Times > 0 {
			if fault.Times--; fault.Times == 0 {
				f.faults = append(f.faults[:i:i], f.faults[i+1:]...)
			}
		}
		return fault
	}
	return nil
}

// Fail arms a fault. An operation suffers one fault at most, the oldest.
func (f *Fake[K, V]) Fail(fault Fault[K, V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault)
}

// Heal disarms all faults.
func (f *Fake[K, V]) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.unread = nil, nil
}

// FailObserve makes the next calls of Observe fail, one with each error.
func (f *Fake[K, V]) FailObserve(errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread = append(f.unread, errs...)
}

// Occupy puts something foreign in the place of a key. What was there of ours
// is gone.
func (f *Fake[K, V]) Occupy(k K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, k)
	f.foreign[k] = true
}

// Vacate takes the foreign thing away.
func (f *Fake[K, V]) Vacate(k K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.foreign, k)
}

// Occupied reports whether something foreign is in the place of a key.
func (f *Fake[K, V]) Occupied(k K) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.foreign[k]
}

// Set changes an object behind the driver's back.
func (f *Fake[K, V]) Set(k K, v V) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[k] = v
}

// Remove takes an object away behind the driver's back.
func (f *Fake[K, V]) Remove(k K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, k)
}

// Objects returns what there is, without counting as an Observe.
func (f *Fake[K, V]) Objects() map[K]V {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.objects)
}

// Applied returns all operations that were asked for, in their order.
func (f *Fake[K, V]) Applied() []delta.Op[K, V] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]delta.Op[K, V](nil), f.applied...)
}

// Observed returns how often the objects were read.
func (f *Fake[K, V]) Observed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.observed
}
