// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"maps"
	"testing"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/reconcile"
)

type (
	key   = topology.SysctlKey
	value = topology.Sysctl
	op    = delta.Op[key, value]
)

var _ reconcile.Driver[key, value] = (*Fake[key, value])(nil)

func TestFakeKeepsTheContract(t *testing.T) {
	Run(t, func(*testing.T) Subject[key, value] {
		f := NewFake[key, value]()
		return Subject[key, value]{
			Driver: f,
			Reopen: func(*testing.T) reconcile.Driver[key, value] { return f },
			Keys:   []key{"a", "b", "c", "d"},
			Value:  func(_ key, i int) value { return value(rune('0' + i)) },
			Values: 3,
			Foreign: func(_ *testing.T, k key) func(t *testing.T) {
				f.Occupy(k)
				return func(t *testing.T) {
					if !f.Occupied(k) {
						t.Errorf("the foreign %s is gone", k)
					}
				}
			},
		}
	})
}

var errFault = errors.New("as arranged")

func TestFaults(t *testing.T) {
	isA := func(o op) bool { return o.Key == "a" }
	add := []op{{Verb: delta.Add, Key: "a", Want: "1"}, {Verb: delta.Add, Key: "b", Want: "1"}}
	for _, c := range []struct {
		name   string
		fault  Fault[key, value]
		failed [3]int // operations of each attempt
		there  [3]int // objects after each
	}{
		{"once", Fault[key, value]{Match: isA, Times: 1}, [3]int{1, 0, 0}, [3]int{1, 2, 2}},
		{"twice", Fault[key, value]{Match: isA, Times: 2}, [3]int{1, 1, 0}, [3]int{1, 1, 2}},
		{"always", Fault[key, value]{Match: isA}, [3]int{1, 1, 1}, [3]int{1, 1, 1}},
		{"after it has happened", Fault[key, value]{Match: isA, Times: 1, After: true}, [3]int{1, 0, 0}, [3]int{2, 2, 2}},
		{"all", Fault[key, value]{Times: 2}, [3]int{2, 0, 0}, [3]int{0, 2, 2}},
	} {
		f := NewFake[key, value]()
		c.fault.Err = errFault
		f.Fail(c.fault)
		for attempt := range 3 {
			failed := 0
			for _, err := range f.Apply(add) {
				if errors.Is(err, errFault) {
					failed++
				} else if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			if there := len(f.Objects()); failed != c.failed[attempt] || there != c.there[attempt] {
				t.Errorf("%s, attempt %d: %d failed, %d objects, want %d and %d",
					c.name, attempt, failed, there, c.failed[attempt], c.there[attempt])
			}
		}
		f.Heal()
		if err := errors.Join(f.Apply(add)...); err != nil {
			t.Errorf("%s, healed: %v", c.name, err)
		}
		if n := len(f.Applied()); n != 8 {
			t.Errorf("%s: %d operations on record, want 8", c.name, n)
		}
	}
}

func TestObserveFails(t *testing.T) {
	f := NewFake[key, value]()
	f.Set("a", "1")
	f.FailObserve(errFault)
	if _, err := f.Observe(); !errors.Is(err, errFault) {
		t.Errorf("error %v", err)
	}
	got, err := f.Observe()
	if err != nil || !maps.Equal(got, map[key]value{"a": "1"}) || f.Observed() != 2 {
		t.Errorf("observed %v, error %v, %d times", got, err, f.Observed())
	}
	got["b"] = "2" // the map is the reader's own
	f.Remove("a")
	if left := f.Objects(); len(left) != 0 {
		t.Errorf("objects %v", left)
	}
}

func TestOccupiedPlace(t *testing.T) {
	f := NewFake[key, value]()
	f.Set("a", "1")
	f.Occupy("a")
	add := []op{{Verb: delta.Add, Key: "a", Want: "1"}}
	var foreign *ForeignError
	if err := f.Apply(add)[0]; !errors.As(err, &foreign) || len(f.Objects()) != 0 {
		t.Errorf("error %v, objects %v", err, f.Objects())
	}
	f.Vacate("a")
	if err := f.Apply(add)[0]; err != nil {
		t.Error(err)
	}
}
