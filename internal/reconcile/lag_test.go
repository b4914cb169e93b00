// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"
	"time"
)

// What is not applied says since when; what is applied, nothing.
func TestBehindSince(t *testing.T) {
	w := newWorld("route").open()
	route, kernel := w.tables[0], w.kernels[0]
	behind := func() time.Duration {
		t.Helper()
		since := w.Status()[0].BehindSince
		if since.IsZero() {
			return 0
		}
		return w.now.Sub(since)
	}
	w.step()
	if got := behind(); got != 0 {
		t.Errorf("%s behind, with nothing to do", got)
	}
	route.Want(1, "a", "test")
	w.step()
	if got := behind(); got != 0 {
		t.Errorf("%s behind, and yet in sync", got)
	}

	kernel.modes[2] = always
	route.Want(2, "a", "test")
	w.step()
	start := w.now
	w.run(time.Minute)
	if got, want := behind(), w.now.Sub(start); got != want {
		t.Errorf("%s behind, want %s: the route fails since then", got, want)
	}
	// Another failure that comes later is not the oldest, whatever else works
	// in between.
	kernel.modes[3] = always
	route.Want(3, "a", "test")
	later := w.now
	w.run(time.Minute)
	route.Want(4, "a", "test")
	w.run(time.Second)
	if got, want := behind(), w.now.Sub(start); got != want {
		t.Errorf("%s behind, want %s: that of the older failure", got, want)
	}
	// The older one is wanted no more: the other remains.
	route.Unwant(2)
	w.step()
	if got, want := behind(), w.now.Sub(later); got > want || got < want-time.Second {
		t.Errorf("%s behind, want about %s: that of the failure that is left", got, want)
	}
	delete(kernel.modes, 3)
	w.run(time.Minute)
	if got := behind(); got != 0 {
		t.Errorf("%s behind, and yet everything works", got)
	}
}

// A kernel that cannot be read, or that takes its time, is behind as well.
func TestBehindWhileTheDriverFailsOrWorks(t *testing.T) {
	w := newWorld("route").open()
	w.kernels[0].blind = errKernel
	w.step()
	start := w.now
	w.run(time.Minute)
	if got, want := w.now.Sub(w.Status()[0].BehindSince), w.now.Sub(start); got != want {
		t.Errorf("%s behind, want %s: it cannot be read since then", got, want)
	}
	w.kernels[0].blind = nil
	w.run(time.Minute)
	if s := w.Status()[0]; !s.BehindSince.IsZero() {
		t.Errorf("behind since %s, and yet in sync", s.BehindSince)
	}

	w.tables[0].Want(1, "a", "test")
	w.now = w.now.Add(time.Second)
	seen := time.Time{}
	w.kernels[0].during = func() { seen = w.Status()[0].BehindSince }
	w.step()
	if !seen.Equal(w.now) {
		t.Errorf("while the driver works: behind since %s, want since this Step, %s", seen, w.now)
	}
}
