// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// letGo is the error of what somebody else has and will let go.
type letGo struct{}

func (letGo) Error() string { return "somebody has it still" }
func (letGo) Awaits() bool  { return true }

// What only awaits something is pending and no failure, is tried like one, and at
// once after Retry. What fails otherwise is not.
func TestAwaiting(t *testing.T) {
	w := newWorld("route").open()
	route, kernel := w.tables[0], w.kernels[0]
	kernel.awaited[1], kernel.modes[2] = true, always
	route.Want(1, "a", "test")
	route.Want(2, "a", "test")
	p := w.Step(w.now)
	if len(p.Awaiting) != 1 || len(p.Failed) != 1 || p.Awaiting[0].Object == p.Failed[0].Object {
		t.Errorf("pass %+v", p)
	}
	w.run(time.Hour)
	check := func(want string) {
		t.Helper()
		s := w.Status()[0]
		got := fmt.Sprint(len(s.Awaiting), " awaiting, ", len(s.Failing), " failing, last error ", s.LastError)
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	check("1 awaiting, 1 failing, last error kernel says no")
	ops := kernel.ops
	w.Step(w.now)
	if kernel.ops != ops {
		t.Error("tried again without need")
	}
	delete(kernel.awaited, 1)
	if w.Retry("link") || !w.Retry("route") {
		t.Error("a Step is called for by the wrong kind")
	}
	p = w.Step(w.now)
	if kernel.have[1] != "a" || kernel.ops != ops+1 || len(p.Changes) != 1 || p.Changes[0].Recovered != 0 {
		t.Errorf("%v, %d operations, pass %+v", kernel.have, kernel.ops-ops, p)
	}
	check("0 awaiting, 1 failing, last error kernel says no")
}

// Settled is about the keys that are asked for.
func TestSettledKeys(t *testing.T) {
	w := newWorld("route")
	route, kernel := w.tables[0], w.kernels[0]
	expect := func(want string, keys ...key) {
		t.Helper()
		err := route.Settled(keys...)
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v: %v, want %q", keys, err, want)
		}
	}
	expect("route: to be read from the kernel", 1)
	route.Open(func(k key) bool { return k < 10 })
	w.step()
	expect("", 1)
	expect("to be read from the kernel", 10)
	route.Want(1, "a", "test")
	expect("not done yet", 1)
	kernel.modes[2], kernel.awaited[3] = always, true
	route.Want(2, "a", "test")
	route.Want(3, "a", "test")
	w.step()
	expect("", 1, 4)
	expect("kernel says no", 1, 2)
	expect("somebody has it still", 3)
	w.Noticed("route", key(1), nil, true)
	expect("to be read from the kernel", 1)
	expect("", 4)
	w.Resync("route")
	expect("to be read from the kernel", 4)
}
