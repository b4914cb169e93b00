// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"maps"
	"math/rand/v2"
	"testing"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/reconcile"
)

// Subject is a driver to be judged, in a world of its own that has no object
// of ours yet.
type Subject[K delta.Key[K], V comparable] struct {
	Driver reconcile.Driver[K, V]
	// Reopen returns a driver with an empty memory, in the same world.
	Reopen func(t *testing.T) reconcile.Driver[K, V]
	// Keys are at least two, all of which can exist at once.
	Keys []K
	// Value returns one of Values different values for a key; 0 counts as 1,
	// for kinds that have but one.
	Value  func(k K, i int) V
	Values int
	// Foreign puts something that is not ours in the place of a key, and
	// returns a check that it is unharmed. nil: nothing foreign can be there.
	Foreign func(t *testing.T, k K) (unharmed func(t *testing.T))
	// Broken is an addition that must fail, of a key that is not in Keys.
	// It may be missing where there is Foreign.
	Broken *delta.Op[K, V]
}

// Run judges a driver. fresh is called for each part of the contract.
func Run[K delta.Key[K], V comparable](t *testing.T, fresh func(t *testing.T) Subject[K, V]) {
	for _, part := range []struct {
		name string
		test func(j judge[K, V])
	}{
		{"an empty world", judge[K, V].empty},
		{"adding", judge[K, V].adding},
		{"changing", judge[K, V].changing},
		{"deleting", judge[K, V].deleting},
		{"any order", judge[K, V].anyOrder},
		{"foreign objects", judge[K, V].foreign},
		{"one failure of many", judge[K, V].partialFailure},
		{"restart", judge[K, V].restart},
	} {
		t.Run(part.name, func(t *testing.T) {
			s := fresh(t)
			if len(s.Keys) < 2 {
				t.Fatalf("a subject with %d keys, need 2", len(s.Keys))
			}
			s.Values = max(s.Values, 1)
			part.test(judge[K, V]{t: t, Subject: s, want: map[K]V{}})
		})
	}
}

// judge compares a driver with what it should have done.
type judge[K delta.Key[K], V comparable] struct {
	t *testing.T
	Subject[K, V]
	want map[K]V
}

// op makes an operation on a key, as a Tracker would.
func (j judge[K, V]) op(verb delta.Verb, k K, value int) delta.Op[K, V] {
	op := delta.Op[K, V]{Verb: verb, Key: k, Have: j.want[k]}
	if verb != delta.Delete {
		op.Want = j.Value(k, value%j.Values)
	}
	return op
}

// all makes one operation on every key.
func (j judge[K, V]) all(verb delta.Verb, value int) (ops []delta.Op[K, V]) {
	for _, k := range j.Keys {
		ops = append(ops, j.op(verb, k, value))
	}
	return ops
}

// apply carries out operations that must succeed, and looks at the result.
func (j judge[K, V]) apply(d reconcile.Driver[K, V], ops []delta.Op[K, V]) {
	j.t.Helper()
	errs := d.Apply(ops)
	if len(errs) != len(ops) {
		j.t.Fatalf("%d operations, %d outcomes", len(ops), len(errs))
	}
	for i, op := range ops {
		if errs[i] != nil {
			j.t.Fatalf("%s %v %v: %v", op.Verb, op.Key, op.Want, errs[i])
		}
		if op.Verb == delta.Delete {
			delete(j.want, op.Key)
		} else {
			j.want[op.Key] = op.Want
		}
	}
	j.see(d)
}

// see fails unless the driver observes what there should be.
func (j judge[K, V]) see(d reconcile.Driver[K, V]) {
	j.t.Helper()
	got, err := d.Observe()
	if err != nil {
		j.t.Fatalf("observe: %v", err)
	}
	if !maps.Equal(got, j.want) {
		j.t.Fatalf("observed %v\nexpected %v", got, j.want)
	}
}

func (j judge[K, V]) empty() {
	j.see(j.Driver)
	j.apply(j.Driver, nil)
	j.apply(j.Driver, j.all(delta.Delete, 0)) // deleting what is not there succeeds
}

func (j judge[K, V]) adding() {
	j.apply(j.Driver, j.all(delta.Add, 0))
	j.apply(j.Driver, j.all(delta.Add, 0)) // adding what is there succeeds
	j.apply(j.Driver, j.all(delta.Add, 1)) // also where it is not as wanted
}

func (j judge[K, V]) changing() {
	j.apply(j.Driver, j.all(delta.Add, 0))
	for v := range j.Values + 1 {
		j.apply(j.Driver, j.all(delta.Change, v))
		j.apply(j.Driver, j.all(delta.Change, v)) // as after an outcome that was not known
	}
	j.apply(j.Driver, j.all(delta.Delete, 0))
	j.apply(j.Driver, j.all(delta.Change, 1)) // what is not there any more, unnoticed
}

func (j judge[K, V]) deleting() {
	j.apply(j.Driver, j.all(delta.Add, 0))
	j.apply(j.Driver, []delta.Op[K, V]{j.op(delta.Delete, j.Keys[0], 0)}) // and nothing else
	j.apply(j.Driver, j.all(delta.Delete, 0))
	j.apply(j.Driver, j.all(delta.Delete, 0))
	j.apply(j.Driver, j.all(delta.Add, 1))
	// What the operation says about the present may be wrong by now.
	ops := j.all(delta.Delete, 0)
	for i := range ops {
		ops[i].Have = j.Value(ops[i].Key, 0)
	}
	j.apply(j.Driver, ops)
}

// anyOrder carries out operations at random, some of which a Tracker would not
// ask for, in batches of any order.
func (j judge[K, V]) anyOrder() {
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		var ops []delta.Op[K, V]
		for _, k := range j.Keys {
			_, there := j.want[k]
			switch {
			case r.IntN(4) == 0: // left alone
			case r.IntN(3) == 0:
				ops = append(ops, j.op(delta.Delete, k, 0))
			case there:
				ops = append(ops, j.op(delta.Change, k, r.IntN(j.Values)))
			default:
				ops = append(ops, j.op(delta.Add, k, r.IntN(j.Values)))
			}
		}
		r.Shuffle(len(ops), func(a, b int) { ops[a], ops[b] = ops[b], ops[a] })
		j.apply(j.Driver, ops)
	}
}

func (j judge[K, V]) foreign() {
	if j.Foreign == nil {
		j.t.Skip("nothing foreign can be in the place of this kind")
	}
	k := j.Keys[0]
	unharmed := j.Foreign(j.t, k)
	j.see(j.Driver)
	for _, verb := range []delta.Verb{delta.Add, delta.Change, delta.Delete} {
		errs := j.Driver.Apply([]delta.Op[K, V]{j.op(verb, k, 0)})
		if failed := errs[0] != nil; failed != (verb != delta.Delete) {
			j.t.Errorf("%s %v, which is foreign: error %v", verb, k, errs[0])
		}
		j.see(j.Driver)
		unharmed(j.t)
	}
}

// partialFailure: one operation fails, those around it are carried out.
func (j judge[K, V]) partialFailure() {
	failing, keys := j.Broken, j.Keys
	if failing == nil {
		if j.Foreign == nil {
			j.t.Fatal("a subject that cannot fail: give it Broken or Foreign")
		}
		j.Foreign(j.t, keys[0])
		op := j.op(delta.Add, keys[0], 0)
		failing, keys = &op, keys[1:]
	}
	for round, verb := range []delta.Verb{delta.Add, delta.Change, delta.Delete} {
		var ops []delta.Op[K, V]
		for i, k := range keys {
			if i == len(keys)/2 {
				ops = append(ops, *failing)
			}
			ops = append(ops, j.op(verb, k, round))
		}
		errs := j.Driver.Apply(ops)
		for i, op := range ops {
			switch isFailing := op.Key == failing.Key; {
			case isFailing != (errs[i] != nil):
				j.t.Fatalf("%s %v: error %v", op.Verb, op.Key, errs[i])
			case isFailing:
			case verb == delta.Delete:
				delete(j.want, op.Key)
			default:
				j.want[op.Key] = op.Want
			}
		}
		j.see(j.Driver)
	}
}

// restart: a driver with an empty memory sees and changes what another one
// made, also where that ended between two batches.
func (j judge[K, V]) restart() {
	ops := j.all(delta.Add, 0)
	j.apply(j.Driver, ops[:len(ops)/2])
	j.apply(j.Driver, ops[len(ops)/2:])
	next := j.Reopen(j.t)
	j.see(next)
	j.apply(next, ops) // the same again, as after an outcome that was not known
	j.apply(next, j.all(delta.Change, 1))
	j.apply(next, j.all(delta.Delete, 0))
}
