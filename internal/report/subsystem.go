// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"time"
)

// State is the verdict on a subsystem.
type State string

// States.
const (
	Good    State = "ok"
	Pending State = "pending" // on its way, without anybody's help
	Bad     State = "problem"
	Idle    State = "idle" // not there, and need not be
)

// Subsystem is one line of `weft status`.
type Subsystem struct {
	Subsystem   string    `json:"subsystem"`
	State       State     `json:"state"`
	Since       time.Time `json:"since,omitzero"`    // of the state, where that is known
	Pending     int       `json:"pending,omitempty"` // objects
	Detail      string    `json:"detail"`
	LastError   string    `json:"lastError,omitempty"` // stays when it is over
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
}

// Settled reports whether nothing is wrong and nothing on its way.
func (s Subsystem) Settled() bool { return s.State == Good || s.State == Idle }

// Header implements view.Row.
func (Subsystem) Header() []string {
	return []string{"SUBSYSTEM", "STATE", "SINCE", "PENDING", "DETAIL"}
}

// Cells implements view.Row. The last error stands at the end of the line: it
// is long, and most have none.
func (s Subsystem) Cells() []string {
	since, pending, detail := "", "", s.Detail
	if !s.Since.IsZero() {
		since = s.Since.UTC().Format(time.RFC3339)
	}
	if s.Pending > 0 {
		pending = fmt.Sprint(s.Pending)
	}
	if s.LastError != "" {
		detail += fmt.Sprintf("; last error %s: %s", s.LastErrorAt.UTC().Format(time.RFC3339), s.LastError)
	}
	return []string{s.Subsystem, string(s.State), since, pending, oneLine(detail)}
}
