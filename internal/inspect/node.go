// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/report"
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
func (n Node) Ask() error { return n.ask(time.Now().Add(askTimeout)) }

func (n Node) ask(deadline time.Time) error {
	config, err := json.Marshal(map[string]string{
		"cniVersion": cni.NewestVersion, "name": "weft", "type": "weft-cni", "socket": n.SocketPath(),
	})
	if err != nil {
		return err
	}
	request := wire.Request{Env: map[string]string{"CNI_COMMAND": cni.Status}, Config: config}
	resp, err := wire.Call(n.SocketPath(), request, -1, deadline)
	if err != nil || !resp.Failed {
		return err
	}
	cerr, err := cni.DecodeError(resp.Output)
	if err != nil {
		return err
	}
	return cerr
}

// Query asks the agent a question of package report. The error wraps
// wire.ErrNoAgent if there is none.
func (n Node) Query(question string, deadline time.Time) (r report.Report, err error) {
	err = n.answer(question, deadline, &r)
	return r, err
}

// Timelines asks the agent what happened when to the pods of its node.
func (n Node) Timelines() (list []report.Timeline, err error) {
	err = n.answer(report.Trace, time.Now().Add(askTimeout), &list)
	return list, err
}

// answer decodes what the agent says to a question.
func (n Node) answer(question string, deadline time.Time, into any) error {
	resp, err := wire.Call(n.SocketPath(), wire.Request{Query: question}, -1, deadline)
	if err != nil {
		return fmt.Errorf("%w; start it, or say where it is by --state-dir or --socket", err)
	}
	if resp.Failed {
		cerr, err := cni.DecodeError(resp.Output)
		switch {
		case err != nil:
			return err
		case cerr.Code == cni.CodeEnvironment: // an agent that took it for a call
			return errors.New("the agent is of an older release and answers no questions; restart it with this one")
		}
		return cerr
	}
	if err := json.Unmarshal(resp.Output, into); err != nil {
		return fmt.Errorf("decode the agent's report: %w", err)
	}
	return nil
}

// Everything asks the agent for its whole report.
func (n Node) Everything() (report.Report, error) {
	return n.Query(report.Everything, time.Now().Add(askTimeout))
}
