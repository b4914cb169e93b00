// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"time"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
)

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
	return Problems(f, k, n.StateDir, now)
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
