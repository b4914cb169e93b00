// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"time"

	"weft.dev/weft/internal/report"
)

// waitPause is the time between two looks at an agent that is not there or not
// in sync.
const waitPause = 100 * time.Millisecond

// Wait waits until the node's agent serves, and everything that it is
// responsible for is in sync with what the registry has told by then. It
// returns what is still missing when ctx ends; nothing if all is well. Objects
// that are rejected, and what others do on the node, are not waited for.
func Wait(ctx context.Context, n Node) []report.Subsystem {
	var last []report.Subsystem
	for {
		missing := n.missing(ctx)
		if len(missing) == 0 {
			return nil
		}
		// A question that the end cut off says nothing about the agent.
		if last == nil || ctx.Err() == nil {
			last = missing
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(waitPause):
		}
	}
}

// missing asks the agent once.
func (n Node) missing(ctx context.Context) []report.Subsystem {
	deadline := time.Now().Add(askTimeout)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	r, err := n.Query(report.Sync, deadline)
	if err != nil {
		return []report.Subsystem{problem("agent", err)}
	}
	var missing []report.Subsystem
	for _, s := range r.Subsystems {
		if !s.Settled() {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		return missing
	}
	if err := n.ask(deadline); err != nil {
		return []report.Subsystem{problem("agent", err)}
	}
	return nil
}
