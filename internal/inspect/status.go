// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"os"
	"time"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/wire"
)

// Status judges every subsystem of a node: what a running agent says of
// itself, and what can be seen without it.
func Status(n Node, now time.Time) []report.Subsystem {
	if _, err := os.Stat(n.StateDir); err != nil {
		return []report.Subsystem{problem("journal", fmt.Errorf("no Weft has run with this state directory: %w; see --state-dir", err))}
	}
	f, err := journal.Read(n.StateDir, facts.New)
	if err != nil {
		return append([]report.Subsystem{agentStatus(n, false), problem("journal", err)}, n.told()...)
	}
	rows := []report.Subsystem{
		agentStatus(n, f.Config() != ""),
		good("journal", fmt.Sprintf("%d records in %s", f.Len(), n.StateDir)),
	}
	rows = append(rows, rangeStatus(f, now)...)
	rows = append(rows, n.told()...)
	// From elsewhere neither interfaces nor rules of the node can be seen.
	if err := n.Elsewhere(); err != nil {
		return append(rows, problem("attachments", err))
	}
	rows = append(rows, leakStatus(n, f, now))
	return append(rows, forwardingStatus(f)...)
}

func good(subsystem, detail string) report.Subsystem {
	return report.Subsystem{Subsystem: subsystem, State: report.Good, Detail: detail}
}

func problem(subsystem string, err error) report.Subsystem {
	return report.Subsystem{Subsystem: subsystem, State: report.Bad, Detail: err.Error()}
}

// told is what the agent says, with a line for each object that it rejects;
// nothing where there is no agent.
func (n Node) told() []report.Subsystem {
	r, err := n.Query(report.Status, time.Now().Add(askTimeout))
	switch {
	case errors.Is(err, wire.ErrNoAgent):
		return nil
	case err != nil:
		return []report.Subsystem{problem("report", err)}
	}
	rows := r.Subsystems
	for _, o := range r.Rejected {
		rows = append(rows, report.Subsystem{Subsystem: "rejected", State: report.Bad, Detail: o.Object + ": " + o.Reason})
	}
	return rows
}

// agentStatus judges the agent. expected: its journal says that there was one.
func agentStatus(n Node, expected bool) report.Subsystem {
	err := n.Ask()
	pid, alive := journal.OwnerAlive(n.StateDir)
	switch {
	case err == nil:
		return good("agent", fmt.Sprintf("process %d serves %s", pid, n.SocketPath()))
	case errors.Is(err, wire.ErrNoAgent) && !alive && !expected:
		return report.Subsystem{Subsystem: "agent", State: report.Idle, Detail: "none runs here; thin plugins need none"}
	case errors.Is(err, wire.ErrNoAgent) && !alive:
		return problem("agent", errors.New("not running: DEL still works, ADD waits for it; start it"))
	default:
		return problem("agent", err)
	}
}

func rangeStatus(f *facts.Facts, now time.Time) []report.Subsystem {
	ranges, err := Ranges(f, now)
	if err != nil {
		return []report.Subsystem{problem("addresses", err)}
	}
	var rows []report.Subsystem
	for _, r := range ranges {
		if r.Total == 1 && r.Used == 1 {
			continue // a pod's own, in no block of this node: others need not have room there
		}
		row := good("addresses", fmt.Sprintf("%s: %d of %s used, %d cooling", r.Ranges, r.Used, report.Count(r.Total), r.Cooling))
		if r.Free == 0 {
			row.State, row.Detail = report.Bad, row.Detail+"; exhausted: no pod can start; see weft pod list"
		}
		rows = append(rows, row)
	}
	return rows
}

func leakStatus(n Node, f *facts.Facts, now time.Time) report.Subsystem {
	problems, err := n.problems(f, now)
	switch {
	case err != nil:
		return problem("attachments", err)
	case len(problems) > 0:
		return problem("attachments", fmt.Errorf("%d of %d disagree with the kernel: see weft ipam check", len(problems), f.Len()))
	}
	return good("attachments", fmt.Sprintf("%d, as the kernel has them", f.Len()))
}
