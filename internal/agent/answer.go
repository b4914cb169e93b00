// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/plugin"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/timeline"
	"weft.dev/weft/internal/wire"
)

// answer serves one CNI call that a shim forwarded, or a question of the
// operator's commands.
func (a *Agent) answer(ctx context.Context, r wire.Request, netns int) (resp wire.Response, after func()) {
	if r.Query != "" {
		closeFD(netns)
		if r.Query == report.Trace {
			return a.timelines(), nil
		}
		settled := func(ctx context.Context) error { return a.fabric.Wait(ctx) }
		return answerQuery(ctx, r.Query, settled, a.report), nil
	}
	start := time.Now()
	call := cni.CallFromEnv(func(key string) string { return r.Env[key] }, r.Config)
	course := a.begun(r, call, start)
	var cerr *cni.Error
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("panic", "verb", call.Command, "panic", p, "stack", string(debug.Stack()))
			cerr = cni.Errorf(cni.CodeInternal, "internal error in the agent: %v; please report it", p)
		}
		if cerr != nil {
			a.check(cerr)
			resp = wire.Response{Output: cerr.Encode(cni.VersionOf(call.Stdin)), Failed: true}
		}
		took := time.Since(start)
		a.ended(course, call, took, cerr)
		after = func() { a.logCall(call, took, cerr) }
	}()
	sandbox := &received{fd: netns}
	defer sandbox.discard()

	var out []byte
	out, cerr = a.serve(ctx, call, sandbox, course)
	return wire.Response{Output: out}, nil
}

func (a *Agent) serve(ctx context.Context, call cni.Call, sandbox *received, course *timeline.Call) ([]byte, *cni.Error) {
	if cerr := call.Check(); cerr != nil {
		return nil, cerr
	}
	cfg, cerr := cni.ParseConfig(call)
	if cerr != nil {
		return nil, cerr
	}
	e := &errand{Agent: a, ctx: ctx, verb: call.Command, key: call.Key(cfg.Name), course: course}
	verbs := plugin.Verbs{Engine: a.engine, OpenNetns: sandbox.open, Network: e.network, Mark: course.Mark}
	if a.cluster != nil {
		verbs.Announce = e.announce
		defer a.wake() // the use of addresses may have changed
	}
	out, cerr := verbs.Serve(ctx, call, cfg)
	if cerr != nil && call.Command == cni.Add {
		cerr = e.explainExhausted(cerr)
		e.lament(cerr)
	}
	return out, cerr
}

func (a *Agent) logCall(call cni.Call, took time.Duration, cerr *cni.Error) {
	attrs := []any{
		"verb", call.Command, "pod", plugin.PodName(call), "container", call.ContainerID, "ifname", call.Ifname,
		"ms", float64(took.Microseconds()) / 1000,
	}
	if cerr != nil {
		a.log.Warn("call failed", append(attrs, "code", uint(cerr.Code), "error", cerr.Error())...)
		return
	}
	// STATUS comes every few seconds and changes nothing.
	if call.Command == cni.Status {
		a.log.Debug("call served", attrs...)
		return
	}
	a.log.Info("call served", attrs...)
}

// received is the namespace that came with a request.
type received struct{ fd int }

// open hands the descriptor over. The path is what the runtime called it: the
// agent may not see it, and need not.
func (r *received) open(path string) (*kernel.Netns, error) {
	if r.fd < 0 {
		return nil, errors.New("the request carries no namespace; install weft-cni and weft of one release")
	}
	fd := r.fd
	r.fd = -1
	return kernel.NetnsFromFD(fd, path)
}

func (r *received) discard() { closeFD(r.fd) }

// failure is the answer to a request that could not be understood.
func failure(r wire.Request, err error) wire.Response {
	cerr := cni.Errorf(cni.CodeInternal, "agent: %w", fmt.Errorf("understand the shim's request: %w", err))
	return wire.Response{Output: cerr.Encode(cni.VersionOf(r.Config)), Failed: true}
}
