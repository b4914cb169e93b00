// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type key int

func (k key) Compare(o key) int { return cmp.Compare(k, o) }

// naive is the difference as one writes it down.
func naive(desired, observed map[key]string) []Op[key, string] {
	var ops []Op[key, string]
	for k := key(0); k < keys; k++ {
		want, wanted := desired[k]
		have, there := observed[k]
		switch {
		case wanted && !there:
			ops = append(ops, Op[key, string]{Verb: Add, Key: k, Want: want})
		case wanted && want != have:
			ops = append(ops, Op[key, string]{Verb: Change, Key: k, Want: want, Have: have})
		case there && !wanted:
			ops = append(ops, Op[key, string]{Verb: Delete, Key: k, Have: have})
		}
	}
	return ops
}

const keys = 8

// TestPendingIsTheDifference: whatever is wanted, observed and done, in any
// order, Pending is the difference.
func TestPendingIsTheDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tracker Tracker[key, string]
		desired, observed := map[key]string{}, map[key]string{}
		drawKey := rapid.Map(rapid.IntRange(0, keys-1), func(i int) key { return key(i) })
		// The zero value is one like any other.
		drawValue := rapid.SampledFrom([]string{"", "a", "b"})

		t.Repeat(map[string]func(*rapid.T){
			"Want": func(t *rapid.T) {
				k, v := drawKey.Draw(t, "key"), drawValue.Draw(t, "value")
				desired[k] = v
				tracker.Want(k, v)
			},
			"Unwant": func(t *rapid.T) {
				k := drawKey.Draw(t, "key")
				delete(desired, k)
				tracker.Unwant(k)
			},
			"Observe": func(t *rapid.T) {
				observed = rapid.MapOf(drawKey, drawValue).Draw(t, "all")
				all := maps.Clone(observed)
				if len(all) == 0 && rapid.Bool().Draw(t, "nil") {
					all = nil
				}
				tracker.Observe(all)
			},
			"Done": func(t *rapid.T) {
				ops := tracker.Pending()
				if len(ops) == 0 {
					t.Skip("nothing is due")
				}
				op := rapid.SampledFrom(ops).Draw(t, "operation")
				// While it was under way, something else became wanted.
				if rapid.Bool().Draw(t, "overtaken") {
					v := drawValue.Draw(t, "value")
					desired[op.Key] = v
					tracker.Want(op.Key, v)
				}
				if op.Verb == Delete {
					delete(observed, op.Key)
				} else {
					observed[op.Key] = op.Want
				}
				tracker.Done(op)
			},
			"": func(t *rapid.T) {
				want := naive(desired, observed)
				if got := tracker.Pending(); !slices.Equal(got, want) {
					t.Fatalf("pending %v, want %v", got, want)
				}
				if tracker.InSync() != (len(want) == 0) {
					t.Fatalf("in sync: %t, with %d pending", tracker.InSync(), len(want))
				}
				if d, p := tracker.Len(); d != len(desired) || p != len(want) {
					t.Fatalf("length %d, %d, want %d, %d", d, p, len(desired), len(want))
				}
				if got := maps.Collect(tracker.Desired()); !maps.Equal(got, desired) {
					t.Fatalf("desired %v, want %v", got, desired)
				}
				for k := key(0); k < keys; k++ {
					v, there := tracker.Observed(k)
					if want, ok := observed[k]; v != want || there != ok {
						t.Fatalf("observed of %d: %q, %t, want %q, %t", k, v, there, want, ok)
					}
				}
			},
		})
	})
}

// TestDoingEverythingEndsInSync: after the operations have happened nothing is
// due, and what was observed is what is desired.
func TestDoingEverythingEndsInSync(t *testing.T) {
	var tracker Tracker[key, string]
	tracker.Want(1, "new")
	tracker.Want(2, "other")
	tracker.Want(3, "same")
	tracker.Observe(map[key]string{2: "one", 3: "same", 4: "gone"})

	want := []Op[key, string]{
		{Verb: Add, Key: 1, Want: "new"},
		{Verb: Change, Key: 2, Want: "other", Have: "one"},
		{Verb: Delete, Key: 4, Have: "gone"},
	}
	ops := tracker.Pending()
	if !slices.Equal(ops, want) {
		t.Fatalf("pending %v, want %v", ops, want)
	}
	for _, op := range ops {
		tracker.Done(op)
	}
	if !tracker.InSync() {
		t.Fatalf("pending %v, want nothing", tracker.Pending())
	}
	if _, there := tracker.Observed(4); there {
		t.Fatal("what was deleted still counts as observed")
	}
}

// BenchmarkPendingAfterALot: what was once due costs nothing later.
func BenchmarkPendingAfterALot(b *testing.B) {
	var tracker Tracker[key, string]
	for k := range key(10_000) {
		tracker.Want(k, "v")
	}
	for _, op := range tracker.Pending() {
		tracker.Done(op)
	}
	for b.Loop() {
		tracker.Unwant(1)
		tracker.Done(tracker.Pending()[0])
		tracker.Want(1, "v")
		tracker.Done(tracker.Pending()[0])
	}
}
