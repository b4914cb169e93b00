// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/wire"
)

// Forward hands a call to the agent, and serves it itself where the agent is down
// and the verb allows it.
func Forward(ctx context.Context, call cni.Call, to cni.Forwarding) ([]byte, *cni.Error) {
	return forward(ctx, call, to, wire.Origin{})
}

// forward is Forward for the call that this process was started for.
func forward(ctx context.Context, call cni.Call, to cni.Forwarding, from wire.Origin) ([]byte, *cni.Error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(to.Timeout)
	}
	netns := -1
	if call.Command == cni.Add || call.Command == cni.Check {
		// The namespace is judged here, where CNI_NETNS is a path that leads
		// somewhere and the host's own namespace is this process's.
		ns, cerr := Verbs{OpenNetns: kernel.OpenNetns}.sandbox(call)
		if cerr != nil {
			return nil, cerr
		}
		defer ns.Close()
		netns = ns.FD()
	}
	out, cerr, err := ask(call, from, to.Socket, netns, deadline)
	if err == nil {
		return out, cerr
	}
	if !errors.Is(err, wire.ErrNoAgent) && !errors.Is(err, wire.ErrNoAnswer) {
		return nil, noAgentError(call, err)
	}
	cfg, cerr := cni.ParseConfig(call)
	if cerr != nil {
		return nil, cerr
	}
	if !servedOffline(call.Command, cfg) {
		return nil, noAgentError(call, err)
	}
	for {
		out, cerr = offline(ctx, call, cfg)
		var owned *journal.OwnedError
		if cerr == nil || !errors.As(cerr, &owned) {
			return out, cerr
		}
		// The agent has come back while we tried. It has the journal before it
		// listens, and may go away again.
		if out, cerr, err = ask(call, from, to.Socket, netns, deadline); err == nil {
			return out, cerr
		}
		if !errors.Is(err, wire.ErrNoAgent) || time.Until(deadline) < startPause {
			return nil, noAgentError(call, err)
		}
		select {
		case <-ctx.Done():
			return nil, noAgentError(call, err)
		case <-time.After(startPause):
		}
	}
}

// startPause is the time between two looks at an agent that is starting.
const startPause = 20 * time.Millisecond

// servedOffline reports whether the shim may serve the verb without the agent.
// DEL must work, or pods could not terminate; GC only frees; CHECK only reads.
// ADD creates what an operator may want only the agent to create.
func servedOffline(verb string, cfg *cni.Config) bool {
	switch verb {
	case cni.Del, cni.GC, cni.Check:
		return true
	case cni.Add:
		return cfg.OfflineAdd
	default:
		return false
	}
}

func noAgentError(call cni.Call, err error) *cni.Error {
	code, advice := cni.CodeTryAgain, "start the agent, or see why it hangs: weft status"
	if call.Command == cni.Status {
		code = cni.CodeUnavailable
	}
	return &cni.Error{Code: code, Msg: fmt.Sprintf("%s: %v; %s", call.Command, err, advice), Err: err}
}

// ask calls the agent. err is set where there is no answer; cerr is an answer.
func ask(call cni.Call, from wire.Origin, socket string, netns int, deadline time.Time) (out []byte, cerr *cni.Error, err error) {
	env := make(map[string]string)
	for _, kv := range call.Env() {
		if k, v, _ := strings.Cut(kv, "="); v != "" {
			env[k] = v
		}
	}
	resp, err := wire.Call(socket, wire.Request{Env: env, Config: call.Stdin, Origin: from}, netns, deadline)
	if err != nil {
		return nil, nil, err
	}
	if resp.Failed {
		cerr, err := cni.DecodeError(resp.Output)
		if err != nil {
			return nil, nil, fmt.Errorf("decode the agent's error: %w", err)
		}
		return nil, cerr, nil
	}
	return resp.Output, nil, nil
}
