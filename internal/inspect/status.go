// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/wire"
)

// Node is where the state of a node's Weft lies.
type Node struct {
	StateDir string
	Socket   string // "": the default one in StateDir
}

// SocketPath returns the agent's socket.
func (n Node) SocketPath() string {
	if n.Socket != "" {
		return n.Socket
	}
	return filepath.Join(n.StateDir, v1alpha1.DefaultSocketName)
}

// askTimeout bounds how long a hung agent can hold up `weft status`.
const askTimeout = 5 * time.Second

// Ask asks the agent for STATUS. It returns nil if an ADD can succeed now, the
// agent's *cni.Error if not, and an error wrapping wire.ErrNoAgent if there is
// none.
func (n Node) Ask() error {
	config, err := json.Marshal(map[string]string{
		"cniVersion": cni.NewestVersion, "name": "weft", "type": "weft-cni", "socket": n.SocketPath(),
	})
	if err != nil {
		return err
	}
	request := wire.Request{Env: map[string]string{"CNI_COMMAND": cni.Status}, Config: config}
	resp, err := wire.Call(n.SocketPath(), request, -1, time.Now().Add(askTimeout))
	if err != nil || !resp.Failed {
		return err
	}
	cerr, err := cni.DecodeError(resp.Output)
	if err != nil {
		return err
	}
	return cerr
}

// State is the verdict on a subsystem.
type State string

// States.
const (
	Good State = "ok"
	Bad  State = "problem"
	Idle State = "idle" // not there, and need not be
)

// Subsystem is one line of `weft status`.
type Subsystem struct {
	Subsystem string `json:"subsystem"`
	State     State  `json:"state"`
	Detail    string `json:"detail"`
}

// Header implements view.Row.
func (Subsystem) Header() []string { return []string{"SUBSYSTEM", "STATE", "DETAIL"} }

// Cells implements view.Row.
func (s Subsystem) Cells() []string { return []string{s.Subsystem, string(s.State), s.Detail} }

// Status judges every subsystem of a node.
func Status(n Node, now time.Time) []Subsystem {
	if _, err := os.Stat(n.StateDir); err != nil {
		return []Subsystem{{"journal", Bad, fmt.Sprintf("no Weft has run with this state directory: %v; see --state-dir", err)}}
	}
	f, err := journal.Read(n.StateDir, facts.New)
	if err != nil {
		return []Subsystem{agentStatus(n, false), {"journal", Bad, err.Error()}}
	}
	rows := []Subsystem{
		agentStatus(n, f.Config() != ""),
		{"journal", Good, fmt.Sprintf("%d records in %s", f.Len(), n.StateDir)},
	}
	rows = append(rows, rangeStatus(f, now)...)
	return append(rows, leakStatus(n, f, now))
}

// agentStatus judges the agent. expected: its journal says that there was one.
func agentStatus(n Node, expected bool) Subsystem {
	err := n.Ask()
	pid, alive := journal.OwnerAlive(n.StateDir)
	switch {
	case err == nil:
		return Subsystem{"agent", Good, fmt.Sprintf("process %d serves %s", pid, n.SocketPath())}
	case errors.Is(err, wire.ErrNoAgent) && !alive && !expected:
		return Subsystem{"agent", Idle, "none runs here; thin plugins need none"}
	case errors.Is(err, wire.ErrNoAgent) && !alive:
		return Subsystem{"agent", Bad, "not running: DEL still works, ADD waits for it; start it"}
	default:
		return Subsystem{"agent", Bad, err.Error()}
	}
}

func rangeStatus(f *facts.Facts, now time.Time) []Subsystem {
	ranges, err := Ranges(f, now)
	if err != nil {
		return []Subsystem{{"addresses", Bad, err.Error()}}
	}
	var rows []Subsystem
	for _, r := range ranges {
		state, detail := Good, fmt.Sprintf("%s: %d of %s used, %d cooling", r.Ranges, r.Used, count(r.Total), r.Cooling)
		if r.Free == 0 {
			state, detail = Bad, detail+"; exhausted: no pod can start; see weft pod list"
		}
		rows = append(rows, Subsystem{"addresses", state, detail})
	}
	return rows
}

func leakStatus(n Node, f *facts.Facts, now time.Time) Subsystem {
	problems, err := n.problems(f, now)
	switch {
	case err != nil:
		return Subsystem{"attachments", Bad, err.Error()}
	case len(problems) > 0:
		return Subsystem{"attachments", Bad, fmt.Sprintf("%d of %d disagree with the kernel: see weft ipam check", len(problems), f.Len())}
	}
	return Subsystem{"attachments", Good, fmt.Sprintf("%d, as the kernel has them", f.Len())}
}

// Check lists what is wrong with a node's records; nothing if all is well. A
// damaged journal is a problem like any other.
func Check(n Node, now time.Time) ([]Problem, error) {
	f, err := journal.Read(n.StateDir, facts.New)
	var corrupt *journal.CorruptError
	if errors.As(err, &corrupt) {
		return []Problem{{
			Object: corrupt.File, Found: fmt.Sprintf("line %d: %s", corrupt.Line, corrupt.Reason),
			Action: "stop the agent, then weft ipam check --repair",
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	return n.problems(f, now)
}

func (n Node) problems(f *facts.Facts, now time.Time) ([]Problem, error) {
	if err := n.Elsewhere(); err != nil {
		return nil, err
	}
	k, err := kernel.Open()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	problems, err := Problems(f, k, n.StateDir, now)
	if err != nil || f.Config() == "" {
		return problems, err
	}
	network, err := engine.RecordedNetwork(f)
	if err != nil {
		return problems, err
	}
	node, err := engine.AgentNode(f, network)
	if err != nil {
		return problems, err
	}
	differences, err := k.CompareNode(node)
	for _, d := range differences {
		problems = append(problems, Problem{Object: d.Object, Found: d.Found + ", not " + d.Expected, Action: "the agent restores it, within gc.interval"})
	}
	return problems, err
}

// Elsewhere refuses to judge interfaces from another network namespace than the
// agent's: none of them would be seen.
func (n Node) Elsewhere() error {
	pid, alive := journal.OwnerAlive(n.StateDir)
	if !alive || pid == 0 {
		return nil
	}
	theirs, err := kernel.StatNetns(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil // not visible from here, so nothing can be said
	}
	ours, err := kernel.StatNetns("/proc/thread-self/ns/net")
	if err != nil || ours == theirs {
		return err
	}
	return fmt.Errorf("the agent (process %d) works in another network namespace than this command: run it there, for example by nsenter -t %d -n", pid, pid)
}

// Collected is one thing that garbage collection did.
type Collected engine.Entry

// Header implements view.Row.
func (Collected) Header() []string {
	return []string{"TIME", "ATTACHMENT", "ADDRESSES", "OBSERVED", "ACTION"}
}

// Cells implements view.Row.
func (c Collected) Cells() []string {
	action := c.Action
	if c.Error != "" {
		action += ": " + c.Error
	}
	return []string{c.Time.Format(time.RFC3339), c.Key, strings.Join(c.Addresses, ","), c.Observed, action}
}

// History returns what garbage collection did, oldest first.
func History(stateDir string) ([]Collected, error) {
	entries, err := engine.Diary(stateDir)
	rows := make([]Collected, 0, len(entries))
	for _, e := range entries {
		rows = append(rows, Collected(e))
	}
	return rows, err
}
