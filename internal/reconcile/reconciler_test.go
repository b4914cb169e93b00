// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/core/delta"
)

func TestAdditionsInOrderThenDeletionsInReverse(t *testing.T) {
	w := newWorld("route", "nat").open()
	w.kernels[0].have = map[key]string{1: "stale", 2: "old"}
	w.kernels[1].have = map[key]string{1: "stale"}
	w.kernels[0].takes = nil
	for _, table := range w.tables {
		table.Want(2, "new", "test")
		table.Want(3, "new", "test")
	}
	w.step()
	want := "change route 2, add route 3, add nat 2, add nat 3, delete nat 1, delete route 1"
	if got := strings.Join(w.log, ", "); got != want {
		t.Errorf("operations: %s\nwant        %s", got, want)
	}
	want2 := []Change{{Kind: "route", Added: 1, Changed: 1, Deleted: 1}, {Kind: "nat", Added: 2, Deleted: 1}}
	if diff := cmp.Diff(want2, w.changes); diff != "" {
		t.Error(diff)
	}
}

func TestClosedTableIsLeftAlone(t *testing.T) {
	w := newWorld("link", "route")
	w.tables[1].Want(1, "a", "test")
	w.kernels[1].have[2] = "of an earlier process"
	w.Noticed("route", key(2), "x", false)
	w.Resync("")
	if w.runs(t, time.Hour, 1); !w.next.IsZero() {
		t.Errorf("a Step is due at %v", w.next)
	}
	for _, k := range w.kernels {
		if k.reads+k.applies > 0 {
			t.Errorf("%s: %d reads, %d writes", k.name, k.reads, k.applies)
		}
	}
	if s := w.Status()[1]; !s.Closed || !s.InSyncSince.IsZero() || w.Settled() {
		t.Errorf("status %+v", s)
	}
}

func TestScope(t *testing.T) {
	w := newWorld("route")
	route, kernel := w.tables[0], w.kernels[0]
	kernel.have = map[key]string{1: "stale", 100: "of an earlier process"}
	route.Want(2, "a", "test")
	route.Open(func(k key) bool { return k < 100 })
	w.step()
	w.Noticed("route", key(101), "b", false)
	w.run(time.Hour)
	if diff := cmp.Diff(map[key]string{2: "a", 100: "of an earlier process"}, kernel.have); diff != "" {
		t.Error(diff)
	}
	route.Open(nil)
	w.step()
	if diff := cmp.Diff(map[key]string{2: "a"}, kernel.have); diff != "" {
		t.Error("after the scope was widened:", diff)
	}
}

// A device that is made anew has lost everything on it: all of that is read
// and written again, in the same Step.
func TestDependentsAreReplayed(t *testing.T) {
	w := newWorld("link", "neighbour", "route").open()
	for _, table := range w.tables {
		for k := range key(5) {
			table.Want(k, "a", "test")
		}
	}
	w.run(time.Second)
	for name, change := range map[string]func(){
		"changed":          func() { w.tables[0].Want(1, "b", "test") },
		"deleted under us": func() { w.lose(1); w.Resync("link") },
		"deleted, and seen on the timer only": func() {
			w.lose(2)
			w.run(2 * resyncInterval)
		},
		"changed, with an error": func() { w.kernels[0].modes[1] = happened; w.tables[0].Want(1, "c", "test") },
	} {
		change()
		w.step()
		for _, k := range w.kernels[1:] {
			if len(k.have) != 5 {
				t.Errorf("%s: %d of 5 %ss are there", name, len(k.have), k.name)
			}
		}
		w.run(5 * time.Second)
		if !w.Settled() {
			t.Errorf("%s: not settled", name)
		}
	}
}

// lose deletes a device, as somebody else would.
func (w *world) lose(k key) {
	delete(w.kernels[0].have, k)
	for _, d := range w.kernels[1:] {
		clear(d.have)
	}
}

func TestDeletedDeviceTakesDependentsAlong(t *testing.T) {
	w := newWorld("link", "route").open()
	w.tables[0].Want(1, "a", "test")
	w.tables[1].Want(1, "a", "test")
	w.step()
	w.tables[0].Unwant(1)
	w.run(time.Second) // the route is wanted nevertheless
	if _, there := w.kernels[1].have[1]; !there || !w.Settled() {
		t.Errorf("route %v, settled %v", there, w.Settled())
	}
}

func TestNothingIsAppliedBeforeTheFirstRead(t *testing.T) {
	w := newWorld("link", "route").open()
	w.kernels[1].blind = errKernel
	w.tables[0].Want(1, "a", "test")
	w.tables[1].Want(1, "a", "test")
	w.runs(t, 10*time.Minute, 30+int(10*time.Minute/resyncInterval))
	if w.kernels[0].ops != 1 || w.kernels[1].ops != 0 {
		t.Errorf("operations on links %d, on routes %d; want 1, 0", w.kernels[0].ops, w.kernels[1].ops)
	}
	s := w.Status()[1]
	if len(s.Failing) != 1 || s.Failing[0].Verb != "observe" || s.Failing[0].Object != "route" || !s.InSyncSince.IsZero() ||
		s.LastError == nil || s.LastError.Error() != "observe route: kernel says no" || s.LastErrorAt.IsZero() {
		t.Errorf("status %+v", s)
	}
	if len(w.failed) != 1 {
		t.Errorf("reported %d times", len(w.failed))
	}
	w.kernels[1].blind = nil
	w.run(lastDelay * 5 / 4)
	if !w.Settled() {
		t.Errorf("not settled: %+v", w.Status())
	}
}

// A read that fails later leaves what was observed before to build on.
func TestWritesGoOnWhileReadsFail(t *testing.T) {
	w := newWorld("route").open()
	w.step()
	w.kernels[0].blind = errKernel
	w.Resync("route")
	w.step()
	w.tables[0].Want(1, "a", "test")
	w.step()
	if w.kernels[0].have[1] != "a" {
		t.Error("not written")
	}
	if w.Settled() || !w.Status()[0].InSyncSince.IsZero() {
		t.Error("in sync without an observation")
	}
	w.kernels[0].blind = nil
	w.Resync("") // at once, whatever the delay has grown to
	w.step()
	if !w.Settled() {
		t.Error("not settled")
	}
}

func TestStatus(t *testing.T) {
	w := newWorld("route").open()
	route, kernel := w.tables[0], w.kernels[0]
	start := w.now
	kernel.foreign[3] = true
	kernel.modes[1] = always
	for _, k := range []key{3, 2, 1} {
		route.Want(k, "a", "Lease of somebody")
	}
	if s := w.Status()[0]; s.Desired != 3 || s.Pending != 3 {
		t.Errorf("before: %+v", s)
	}
	w.step()
	s := w.Status()[0]
	if s.Desired != 3 || s.Pending != 2 || !s.InSyncSince.IsZero() || s.LastError == nil || !s.LastErrorAt.Equal(start) || !s.LastResync.Equal(start) {
		t.Errorf("failing: %+v", s)
	}
	if len(s.Failing) != 2 {
		t.Fatalf("failing: %+v", s.Failing)
	}
	f := s.Failing[1]
	if s.Failing[0].Object != "route 1" || f.Object != "route 3" || f.Verb != delta.Add || f.Attempts != 1 ||
		!f.Since.Equal(start) || !f.Next.After(start) || f.Err.Error() != "something foreign is in the way" {
		t.Errorf("failing: %+v", s.Failing)
	}
	objects := w.Objects("route")
	for i, want := range []State{Failed, InSync, Failed} {
		if o := objects[i]; o.Key != key(i+1) || o.State != want || (o.Err != nil) != (want == Failed) || o.Origin != "Lease of somebody" {
			t.Errorf("object %+v, want %s", o, want)
		}
	}

	delete(kernel.modes, 1)
	delete(kernel.foreign, 3)
	w.run(time.Minute)
	s = w.Status()[0]
	if s.Pending != 0 || len(s.Failing) != 0 || !s.InSyncSince.After(start) || s.LastError == nil {
		t.Errorf("afterwards: %+v", s)
	}
	since := s.InSyncSince
	w.run(time.Hour)
	if s = w.Status()[0]; !s.InSyncSince.Equal(since) {
		t.Errorf("in sync since %v, then %v", since, s.InSyncSince)
	}
	route.Want(1, "b", "test")
	if s = w.Status()[0]; !s.InSyncSince.IsZero() {
		t.Errorf("in sync with a change pending")
	}
}

// Whoever asks does not wait for the kernel, and the race detector has nothing
// to say.
func TestConcurrentUse(t *testing.T) {
	w := newWorld("link", "route").open()
	started, release := make(chan struct{}), make(chan struct{})
	w.kernels[1].during = sync.OnceFunc(func() { close(started); <-release })
	w.tables[1].Want(1, "a", "test")
	done := make(chan struct{})
	go func() { w.run(time.Minute); close(done) }()

	<-started
	w.Status()
	w.Objects("route")
	w.Noticed("route", key(7), "x", false)
	w.Resync("")
	w.Settled()
	close(release)
	for range 100 {
		w.Noticed("link", key(1), "a", false)
		w.Status()
		w.Resync("route")
	}
	<-done
	if !slices.Equal(slices.Collect(maps.Keys(w.kernels[1].have)), []key{1}) {
		t.Errorf("kernel holds %v", w.kernels[1].have)
	}
}
