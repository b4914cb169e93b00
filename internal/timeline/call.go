// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"time"

	"weft.dev/weft/internal/report"
)

// Start is what is known when a call begins.
type Start struct {
	Verb        string // ADD or DEL; other verbs are not recorded
	Pod         string // namespace/name; "" if the runtime does not say it
	UID         string // of the pod; "" as well
	ContainerID string
	Shim        time.Time // when weft-cni started; zero: not known
	Received    time.Time // when the agent had the request
	TraceParent string    // of wire.Origin
}

// Call is one call that is being recorded. A nil Call records nothing.
type Call struct {
	Start
	recorder *Recorder
	life     *life

	// The Recorder's mutex guards these.
	marks  []report.Mark
	ended  time.Time
	result string
}

// Names of marks, in their usual order; between Received and Answered, Call.Mark
// brings others.
const (
	Created   = "created"   // the API server has the pod (whole seconds)
	Scheduled = "scheduled" // the scheduler has bound it to this node (whole seconds)
	Watched   = "watched"   // the agent's watch brings the pod
	ShimStart = "shim started"
	Received  = "received"  // the agent has the request
	PodKnown  = "pod known" // the agent has the pod's wishes
	Answered  = report.Answered
	Addressed = "addresses in status" // the agent's watch brings them
	Ready     = "ready"               // likewise
	Gone      = "gone"                // likewise
)

// Begin starts to record a call. It returns nil for a verb that is not recorded.
func (r *Recorder) Begin(s Start) *Call {
	if s.Verb != "ADD" && s.Verb != "DEL" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Call{Start: s, recorder: r, life: r.life(s.UID, s.Pod, s.ContainerID), marks: make([]report.Mark, 0, 6)}
	r.keep(c)
	if l := c.life; s.Verb == "ADD" && l.first == nil {
		l.first = c
		l.timer = time.AfterFunc(patience, func() { r.export(func() []podStart { return r.tell(l) }) })
	}
	return c
}

// keep puts the call among those that are kept, and drops the oldest.
func (r *Recorder) keep(c *Call) {
	if len(r.calls) >= r.size {
		oldest := r.calls[0]
		r.calls[0] = nil
		r.calls = r.calls[1:]
		oldest.life.kept--
		if oldest.life != c.life {
			r.forget(oldest.life)
		}
	}
	r.calls = append(r.calls, c)
	c.life.kept++
}

// Mark notes that a step is done now.
func (c *Call) Mark(name string) {
	if c == nil {
		return
	}
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	c.marks = append(c.marks, report.Mark{Name: name, At: time.Now()})
}

// End notes that the answer for the runtime is there; err is the one that it is
// told, nil for success. Nothing may be marked afterwards.
func (c *Call) End(err error) {
	if c == nil {
		return
	}
	c.recorder.export(func() []podStart { return c.end(err) })
	if e := c.recorder.exporter; e != nil {
		e.call(c, err)
	}
}

func (c *Call) end(err error) []podStart {
	l := c.life
	c.ended, c.result = time.Now(), "ok"
	if err != nil {
		c.result = err.Error()
	}
	if c.Verb == "ADD" {
		l.last = c
		if err == nil {
			l.added = c
		}
	}
	if c.Verb == "DEL" && l.watched.IsZero() {
		return c.recorder.tell(l) // nobody else will say that it is gone
	}
	return nil
}
