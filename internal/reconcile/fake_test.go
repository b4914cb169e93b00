// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"weft.dev/weft/internal/core/delta"
)

type key int

func (k key) Compare(o key) int { return cmp.Compare(k, o) }

// mode is how operations on one key fare.
type mode string

const (
	works    mode = ""
	once     mode = "once"     // fails once
	always   mode = "always"   // fails until healed
	happened mode = "happened" // fails once, after having happened
)

var errKernel = errors.New("kernel says no")

// kernel is a Driver in memory.
type kernel struct {
	name    string
	have    map[key]string
	foreign map[key]bool // keys that are occupied by somebody else
	awaited map[key]bool // keys that somebody else has and will let go
	modes   map[key]mode
	blind   error     // of Observe
	takes   []*kernel // loses everything with each operation here
	log     *[]string // operations, in order; may be shared
	during  func()    // called while the driver works

	reads, applies, ops int
}

func newKernel(name string, log *[]string) *kernel {
	return &kernel{name: name, have: map[key]string{}, foreign: map[key]bool{}, awaited: map[key]bool{}, modes: map[key]mode{}, log: log}
}

func (f *kernel) Observe() (map[key]string, error) {
	f.reads++
	if f.during != nil {
		f.during()
	}
	if f.blind != nil {
		return nil, f.blind
	}
	return maps.Clone(f.have), nil
}

func (f *kernel) Apply(ops []delta.Op[key, string]) []error {
	f.applies++
	errs := make([]error, len(ops))
	for i, op := range ops {
		f.ops++
		errs[i] = f.one(op)
	}
	if f.during != nil {
		f.during()
	}
	return errs
}

func (f *kernel) one(op delta.Op[key, string]) error {
	if f.log != nil {
		*f.log = append(*f.log, fmt.Sprintf("%s %s %d", op.Verb, f.name, op.Key))
	}
	mode := f.modes[op.Key]
	if mode == once || mode == happened {
		delete(f.modes, op.Key)
	}
	switch {
	case mode == once || mode == always:
		return errKernel
	case f.foreign[op.Key] && op.Verb != delta.Delete:
		return errors.New("something foreign is in the way")
	case f.awaited[op.Key] && op.Verb != delta.Delete:
		return letGo{}
	case op.Verb == delta.Delete:
		delete(f.have, op.Key)
	default:
		f.have[op.Key] = op.Want
	}
	for _, d := range f.takes {
		clear(d.have)
	}
	if mode == happened {
		return errKernel
	}
	return nil
}

// world is Tables over kernels, in virtual time.
type world struct {
	*Reconciler
	now     time.Time
	next    time.Time
	kernels []*kernel
	tables  []*Table[key, string]
	log     []string
	failed  []Failing // all that Steps reported
	changes []Change
}

// newWorld makes tables of those names; what the others hold vanishes with
// each operation on the first.
func newWorld(names ...string) *world {
	w := &world{now: time.Unix(1_000_000, 0)}
	var kinds, dependents []Kind
	for i := len(names) - 1; i >= 0; i-- {
		k := newKernel(names[i], &w.log)
		var d []Kind
		if i == 0 {
			k.takes, d = w.kernels, dependents
		}
		describe := func(k key) string { return fmt.Sprintf("%s %d", names[i], k) }
		t := NewTable(names[i], k, describe, d...)
		w.kernels = append([]*kernel{k}, w.kernels...)
		w.tables = append([]*Table[key, string]{t}, w.tables...)
		dependents = append([]Kind{t}, dependents...)
	}
	for _, t := range w.tables {
		kinds = append(kinds, t)
	}
	w.Reconciler = New(kinds...)
	return w
}

func (w *world) open() *world {
	for _, t := range w.tables {
		t.Open(nil)
	}
	return w
}

func (w *world) step() {
	p := w.Step(w.now)
	w.failed = append(w.failed, p.Failed...)
	w.changes = append(w.changes, p.Changes...)
	w.next = p.Next
}

// run lets time pass, with a Step whenever one is due, and returns how many
// there were.
func (w *world) run(d time.Duration) (steps int) {
	end := w.now.Add(d)
	w.step()
	for steps = 1; !w.next.IsZero() && !w.next.After(end); steps++ {
		if steps > 100_000 {
			panic("busy loop")
		}
		w.now = latest(w.now, w.next)
		w.step()
	}
	w.now = end
	return steps
}

// runs fails the test if there is more than one Step per reason to expect one.
func (w *world) runs(t testing.TB, d time.Duration, most int) {
	t.Helper()
	if steps := w.run(d); steps > most {
		t.Fatalf("%d steps in %v, want at most %d", steps, d, most)
	}
}
