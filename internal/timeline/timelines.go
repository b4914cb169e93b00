// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"
	"time"

	"weft.dev/weft/internal/report"
)

// Timelines returns the calls for a pod ("namespace/name") that are kept, or
// all for "", oldest first.
func (r *Recorder) Timelines(pod string) []report.Timeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []report.Timeline{}
	for _, c := range r.calls {
		if pod == "" || c.life.pod == pod {
			list = append(list, report.Timeline{
				Pod: c.life.pod, UID: c.life.uid, ContainerID: c.ContainerID, Verb: c.Verb, Result: c.result, Marks: c.moments(),
			})
		}
	}
	return list
}

// moments returns all that is known around the call. The caller has the lock.
func (c *Call) moments() []report.Mark {
	l := c.life
	var list []report.Mark
	add := func(name string, at time.Time) {
		if !at.IsZero() {
			list = append(list, report.Mark{Name: name, At: at})
		}
	}
	if c.Verb == "ADD" {
		add(Watched, l.watched)
	}
	add(ShimStart, c.Shim)
	add(Received, c.Received)
	list = append(list, c.marks...)
	add(Answered, c.ended)
	switch {
	case c.Verb == "DEL":
		add(Gone, l.gone)
	case l.added == c:
		// What was seen before is of an earlier sandbox.
		for _, m := range []report.Mark{{Name: Addressed, At: l.addressed}, {Name: Ready, At: l.ready}} {
			if !m.At.Before(c.ended) {
				add(m.Name, m.At)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b report.Mark) int { return a.At.Compare(b.At) })
	if c.Verb == "ADD" {
		list = slices.Concat(l.origin(), list)
	}
	return list
}

// origin returns what the API server says of how the pod came here.
func (l *life) origin() (list []report.Mark) {
	for _, m := range []report.Mark{{Name: Created, At: l.created}, {Name: Scheduled, At: l.scheduled}} {
		if m.Whole = true; !m.At.IsZero() {
			list = append(list, m)
		}
	}
	return list
}
