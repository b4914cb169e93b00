// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"time"
)

// Trace asks for the Timelines of the agent's node, as a list.
const Trace = "timeline"

// Timeline is what happened when, for one ADD or DEL of one sandbox.
type Timeline struct {
	Pod         string `json:"pod,omitempty"` // namespace/name; "": the runtime did not say
	UID         string `json:"uid,omitempty"`
	ContainerID string `json:"containerID"`
	Verb        string `json:"verb"`
	Result      string `json:"result,omitempty"` // ok, or the error; "": under way
	Marks       []Mark `json:"marks"`            // ascending, but for those of other clocks, which come first
}

// Mark is one moment.
type Mark struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	// Whole says that At is in whole seconds, rounded down, and of another
	// component's clock: as the API server has it.
	Whole bool `json:"whole,omitempty"`
}

// Step is a line of a timeline: a moment, and the time since the one before.
type Step struct {
	Pod         string    `json:"pod"`
	ContainerID string    `json:"containerID"`
	Verb        string    `json:"verb"`
	Step        string    `json:"step"`
	At          time.Time `json:"at"`
	Whole       bool      `json:"whole,omitempty"`
	After       string    `json:"after,omitempty"` // "": the first, or one of two clocks that do not compare
	Result      string    `json:"result,omitempty"`
}

// Steps returns the lines of a timeline.
func (t Timeline) Steps() []Step {
	steps := make([]Step, len(t.Marks))
	for i, m := range t.Marks {
		s := Step{Pod: t.Pod, ContainerID: t.ContainerID, Verb: t.Verb, Step: m.Name, At: m.At.UTC(), Whole: m.Whole}
		if i > 0 && m.Whole == t.Marks[i-1].Whole {
			s.After = since(t.Marks[i-1], m)
		}
		if m.Name == Answered {
			s.Result = t.Result
		}
		steps[i] = s
	}
	return steps
}

// Answered is the Mark at which the agent has its answer for the runtime, and with it
// the Result.
const Answered = "answered"

func since(before, m Mark) string {
	took := m.At.Sub(before.At)
	if m.Whole {
		return fmt.Sprintf("about %s", took)
	}
	return took.Round(10 * time.Microsecond).String()
}

// Header implements view.Row.
func (Step) Header() []string {
	return []string{"POD", "CONTAINER", "VERB", "STEP", "AT", "AFTER", "RESULT"}
}

// Cells implements view.Row.
func (s Step) Cells() []string {
	at := s.At.Format("15:04:05.000000")
	if s.Whole {
		at = s.At.Format("15:04:05")
	}
	// As long as crictl and others show it.
	return []string{s.Pod, s.ContainerID[:min(len(s.ContainerID), 13)], s.Verb, s.Step, at, s.After, oneLine(s.Result)}
}
