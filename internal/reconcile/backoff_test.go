// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"testing"
	"time"
)

func TestBackoffBounds(t *testing.T) {
	for attempts, nominal := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond, 9: 25600 * time.Millisecond,
		10: 30 * time.Second, 11: 30 * time.Second, 64: 30 * time.Second, 1 << 40: 30 * time.Second,
	} {
		seen := map[time.Duration]bool{}
		for i := range 100 {
			object := fmt.Sprint("route ", i)
			d := backoff(attempts, object)
			if d < nominal || d > nominal*5/4 {
				t.Errorf("attempt %d of %s: %v, want %v and up to a quarter more", attempts, object, d, nominal)
			}
			if d != backoff(attempts, object) {
				t.Errorf("attempt %d of %s: not the same twice", attempts, object)
			}
			seen[d] = true
		}
		if len(seen) != 8 {
			t.Errorf("attempt %d: %d different delays", attempts, len(seen))
		}
	}
}

// What never works costs little: one hour of it is known in advance.
func TestNoBusyLoopWhileFailing(t *testing.T) {
	w := newWorld("link", "route").open()
	w.kernels[0].modes[1] = always
	w.kernels[1].foreign[1] = true
	w.tables[0].Want(1, "a", "test")
	w.tables[1].Want(1, "a", "test")
	steps := w.run(time.Hour)
	link, route := w.kernels[0], w.kernels[1]
	t.Logf("%d steps; links: %d reads, %d operations; routes: %d reads, %d operations", steps, link.reads, link.ops, route.reads, route.ops)
	const tries = 9 + 3600/30
	for _, k := range w.kernels {
		if k.ops > tries || k.ops < tries*3/4 {
			t.Errorf("%s: %d operations, want about %d", k.name, k.ops, tries)
		}
	}
	// One read of links after each try, and on the timer; of routes also after
	// each try of a link.
	const timer = int(time.Hour / resyncInterval)
	if link.reads > tries+timer || route.reads > 2*tries+timer || steps > 6*tries {
		t.Error("too many")
	}
	if len(w.failed) != 2 {
		t.Errorf("reported %d times, want once each: %+v", len(w.failed), w.failed)
	}
}

// Thousands of objects that never work are tried in few batches.
func TestManyFailuresAreFewBatches(t *testing.T) {
	w := newWorld("route").open()
	for k := range key(2000) {
		w.kernels[0].modes[k] = always
		w.tables[0].Want(k, "a", "test")
	}
	w.run(10 * time.Minute)
	k := w.kernels[0]
	tries := 9 + 600/30
	t.Logf("%d writes, %d reads", k.applies, k.reads)
	if k.applies > 8*tries || k.reads > 8*tries+10 {
		t.Errorf("%d writes, %d reads; want at most 8 per try", k.applies, k.reads)
	}
}

func TestNewValueIsTriedAtOnce(t *testing.T) {
	w := newWorld("route").open()
	w.kernels[0].modes[1] = always
	w.tables[0].Want(1, "a", "test")
	w.run(5 * time.Minute)
	delete(w.kernels[0].modes, 1)
	w.tables[0].Want(1, "b", "test")
	w.step()
	if w.kernels[0].have[1] != "b" {
		t.Error("a new value waits for the old one's delay")
	}
}
