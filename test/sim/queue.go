// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"container/heap"
	"time"
)

// event is something that happens at a time.
type event struct {
	at    time.Time
	tie   uint64 // decides between events of the same time
	what  string
	node  *node // nil: the whole world's
	life  int   // of the node's process; another one has nothing to do with it
	still func() bool
	do    func()
}

// queue is a heap of events.
type queue []*event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(q[i].at.Compare(q[j].at), cmp.Compare(q[i].tie, q[j].tie)) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}

// after makes something happen later, whatever becomes of anybody.
func (w *World) after(d time.Duration, what string, do func()) {
	heap.Push(&w.queue, &event{at: w.now.Add(d), tie: w.rng.Uint64(), what: what, do: do})
}

// after makes something happen later, unless the node's process ends before.
func (n *node) after(d time.Duration, what string, do func()) {
	heap.Push(&n.w.queue, &event{at: n.w.now.Add(d), tie: n.w.rng.Uint64(), what: what, node: n, life: n.life, do: do})
}

// timer is something of a node's that happens again and again, at the earliest
// of the times that were asked for.
type timer struct {
	what string
	at   time.Time // zero: never
}

// set asks for it at a time.
func (n *node) set(t *timer, at time.Time, do func()) {
	if at.Before(n.w.now) {
		at = n.w.now
	}
	if !t.at.IsZero() && !at.Before(t.at) {
		return
	}
	t.at = at
	heap.Push(&n.w.queue, &event{
		at: at, tie: n.w.rng.Uint64(), what: t.what, node: n, life: n.life,
		still: func() bool { return t.at.Equal(at) },
		do: func() {
			t.at = time.Time{}
			do()
		},
	})
}
