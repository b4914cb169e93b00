// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"
	"time"
)

// settledWorld has links and routes in sync, and no read due for a minute.
func settledWorld(t *testing.T) *world {
	w := newWorld("link", "route").open()
	for k := range key(3) {
		w.tables[0].Want(k, "a", "test")
		w.tables[1].Want(k, "a", "test")
	}
	w.run(5 * time.Second)
	if !w.Settled() {
		t.Fatal("not settled")
	}
	return w
}

func TestEchoCostsNothing(t *testing.T) {
	w := settledWorld(t)
	link, route := w.kernels[0].reads, w.kernels[1].reads
	route0 := w.kernels[1]
	if w.Noticed("route", key(1), "a", false) || w.Noticed("route", key(9), nil, true) || w.Noticed("link", key(1), "a", false) {
		t.Error("an echo calls for a Step")
	}
	// Echoes that come while the driver still works, some before the object is
	// complete, and one late.
	route0.during = func() {
		for _, n := range []struct {
			value string
			gone  bool
		}{{"a", true}, {"half", false}, {"b", false}} {
			if w.Noticed("route", key(1), n.value, n.gone) {
				t.Error("an echo calls for a Step")
			}
		}
	}
	w.tables[1].Want(1, "b", "test")
	w.step()
	w.Noticed("route", key(1), "b", false)
	w.run(time.Second)
	if !w.Settled() || w.kernels[0].reads != link || w.kernels[1].reads != route {
		t.Errorf("settled %v; links read %d times more, routes %d times",
			w.Settled(), w.kernels[0].reads-link, w.kernels[1].reads-route)
	}
	if n := testing.AllocsPerRun(100, func() { w.Noticed("route", key(1), "b", false) }); n > 0 {
		t.Errorf("an echo allocates %v times", n)
	}
}

// A device that is being made says so in several parts.
func TestEchoOfADevice(t *testing.T) {
	w := settledWorld(t)
	w.kernels[0].during = func() {
		w.Noticed("link", key(1), nil, true)
		w.Noticed("link", key(1), "down", false)
		w.Noticed("link", key(1), "b", false)
	}
	link, route := w.kernels[0].reads, w.kernels[1].reads
	w.tables[0].Want(1, "b", "test")
	w.run(time.Second)
	if link, route = w.kernels[0].reads-link, w.kernels[1].reads-route; link != 0 || route != 1 || !w.Settled() {
		t.Errorf("links were read %d times, routes %d times; settled %v", link, route, w.Settled())
	}
}

// A part of an echo that comes late contradicts for a moment only.
func TestLateEcho(t *testing.T) {
	w := settledWorld(t)
	reads := w.kernels[1].reads
	if !w.Noticed("route", key(1), nil, true) {
		t.Error("no Step is called for")
	}
	w.step()
	w.now = w.now.Add(settleTime)
	w.Noticed("route", key(1), "a", false)
	w.run(10 * time.Second)
	if w.kernels[1].reads != reads || !w.Settled() {
		t.Errorf("%d reads", w.kernels[1].reads-reads)
	}
}

func TestContradictionIsMended(t *testing.T) {
	for name, tamper := range map[string]func(*world){
		"deleted":            func(w *world) { delete(w.kernels[1].have, 1); w.Noticed("route", key(1), nil, true) },
		"changed":            func(w *world) { w.kernels[1].have[1] = "x"; w.Noticed("route", key(1), "x", false) },
		"added":              func(w *world) { w.kernels[1].have[9] = "x"; w.Noticed("route", key(9), "x", false) },
		"whatever":           func(w *world) { delete(w.kernels[1].have, 1); w.Noticed("route", nil, nil, false) },
		"a value of no type": func(w *world) { delete(w.kernels[1].have, 1); w.Noticed("route", key(1), 7, false) },
		"everything":         func(w *world) { delete(w.kernels[1].have, 1); w.Noticed("", nil, nil, false) },
		"while it is read": func(w *world) {
			w.kernels[1].during = func() {
				w.kernels[1].during = nil
				delete(w.kernels[1].have, 1)
				w.Noticed("route", key(1), nil, true)
			}
			w.kernels[1].have[2] = "x"
			w.Noticed("route", key(2), "x", false)
		},
		"while it is written": func(w *world) {
			w.kernels[1].during = func() {
				w.kernels[1].during = nil
				delete(w.kernels[1].have, 1)
				w.Noticed("route", key(1), nil, true)
			}
			w.tables[1].Want(2, "b", "test")
			w.step()
		},
		"back while it is changed": func(w *world) {
			w.kernels[1].during = func() {
				w.kernels[1].during = nil
				w.Noticed("route", key(1), "b", false)
				w.kernels[1].have[1] = "a"
				w.Noticed("route", key(1), "a", false)
			}
			w.tables[1].Want(1, "b", "test")
			w.step()
		},
		// The interface was down for a moment: up again, but without routes.
		"a device's flap": func(w *world) {
			clear(w.kernels[1].have)
			w.Noticed("link", key(1), "down", false)
			w.Noticed("link", key(1), "a", false)
		},
	} {
		w := settledWorld(t)
		tamper(w)
		if w.Settled() {
			t.Errorf("%s: settled with a contradiction open", name)
		}
		w.run(500 * time.Millisecond)
		want := "a"
		if name == "back while it is changed" {
			want = "b"
		}
		if !w.Settled() || len(w.kernels[1].have) != 3 || w.kernels[1].have[1] != want {
			t.Errorf("%s: settled %v, kernel holds %v", name, w.Settled(), w.kernels[1].have)
		}
	}
}

func TestContradictionsAreCoalesced(t *testing.T) {
	w := settledWorld(t)
	reads := w.kernels[1].reads
	for i := range 1000 { // over one second
		w.Noticed("route", key(i+10), "x", false)
		w.run(time.Millisecond)
	}
	if n := w.kernels[1].reads - reads; n < 5 || n > 11 {
		t.Errorf("%d reads in a second", n)
	}
}

// A failed operation may have happened: its kind is read again, but not more
// than once a second.
func TestDoubtIsCoalesced(t *testing.T) {
	w := settledWorld(t)
	reads := w.kernels[1].reads
	for i := range 1000 { // over one second
		w.kernels[1].modes[key(i)] = happened
		w.tables[1].Want(key(i), "b", "test")
		w.run(time.Millisecond)
	}
	if n := w.kernels[1].reads - reads; n < 1 || n > 2 {
		t.Errorf("%d reads in a second", n)
	}
	w.run(3 * time.Second)
	if !w.Settled() {
		t.Error("not settled")
	}
}

// What was undone before its outcome was known is not forgotten.
func TestUnwantedAfterUnknownOutcome(t *testing.T) {
	w := settledWorld(t)
	w.kernels[1].modes[9] = happened
	w.tables[1].Want(9, "a", "test")
	w.step()
	w.tables[1].Unwant(9)
	w.step()
	if w.Settled() && len(w.kernels[1].have) > 3 {
		t.Error("settled with a stale object")
	}
	w.run(2 * time.Second)
	if _, there := w.kernels[1].have[9]; there || !w.Settled() {
		t.Errorf("there %v, settled %v", there, w.Settled())
	}
}
