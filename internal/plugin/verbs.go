// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/kernel"
)

// Verbs serves the calls of weft-cni.
type Verbs struct {
	Engine *engine.Engine
	// Network says what the configuration does not: in thin mode it reads it
	// from there, in the agent it knows by itself.
	Network func(*cni.Config) (engine.Network, *cni.Error)
	// DNS is what the network gives where the call does not.
	DNS cni.DNS
	// OpenNetns opens the sandbox: by its path, or by the descriptor that came
	// with the request.
	OpenNetns func(path string) (*kernel.Netns, error)
	// Announce and Mark, where set, are those of engine.AddRequest.
	Announce func(ctx context.Context, a engine.Attachment) error
	Mark     func(step string)
}

// Serve answers one call. The answer is what goes to standard output; empty
// for the verbs that print nothing.
func (v Verbs) Serve(ctx context.Context, call cni.Call, cfg *cni.Config) ([]byte, *cni.Error) {
	switch call.Command {
	case cni.Add:
		return v.add(ctx, call, cfg)
	case cni.Del:
		return nil, v.del(ctx, call, cfg)
	case cni.Check:
		return nil, v.check(ctx, call, cfg)
	case cni.GC:
		return nil, v.gc(ctx, call, cfg)
	case cni.Status:
		return nil, v.status(ctx, call, cfg)
	default:
		return nil, cni.Errorf(cni.CodeEnvironment, "CNI_COMMAND=%q: want ADD, DEL, CHECK, GC, STATUS or VERSION", call.Command)
	}
}

// sandbox opens CNI_NETNS and refuses the host's own namespace, before
// anything has been touched.
func (v Verbs) sandbox(call cni.Call) (*kernel.Netns, *cni.Error) {
	ns, err := v.OpenNetns(call.Netns)
	if err != nil {
		return nil, netnsError(call.Netns, err)
	}
	if ns.IsHost() {
		_ = ns.Close()
		return nil, ownNetnsError(call.Netns)
	}
	return ns, nil
}

func (v Verbs) add(ctx context.Context, call cni.Call, cfg *cni.Config) ([]byte, *cni.Error) {
	ns, cerr := v.sandbox(call)
	if cerr != nil {
		return nil, cerr
	}
	defer ns.Close()
	network, cerr := v.Network(cfg)
	if cerr != nil {
		return nil, cerr
	}
	req := engine.AddRequest{
		Key: call.Key(cfg.Name), Pod: cfg.Args.Pod, Network: network, Netns: ns,
		MAC: cfg.MAC, Sysctls: cfg.Sysctl, Want: cfg.Want, Ports: cfg.Ports, Limits: cfg.Limits,
		Announce: v.Announce, Mark: v.Mark,
	}
	dns := firstDNS(cfg.DNS, v.DNS)
	if d := delegateOf(call, cfg); d != nil {
		if _, err := findPlugin(d.Type, d.Path); err != nil {
			return nil, cni.Errorf(cni.CodeConfig, "ipam.type %q: %w", d.Type, err)
		}
		req.Delegate = d
		req.Ungrant = func(ctx context.Context) error {
			again := call
			again.Command = cni.Del
			return delegateRun(ctx, *d, again)
		}
		req.Grant = func(ctx context.Context) (engine.Granted, error) {
			result, err := delegateAdd(ctx, *d, call)
			dns = firstDNS(dns, result.DNS)
			return grantOf(result), err
		}
	}
	req.Answer = func() (json.RawMessage, error) { return encodeAnswer(dns, cfg.PrevResult) }
	a, err := v.Engine.Add(ctx, req)
	var attached *engine.AttachedError
	switch {
	case errors.As(err, &attached) && cfg.RepeatAdd == cni.RepeatReturn:
		result, err := recordedResult(attached.Record, v.Engine.Instance)
		return encode(result, err, cfg.CNIVersion)
	case err != nil:
		return nil, explain(err)
	}
	return encode(resultOf(a.Spec, a.Plan, call.Netns, dns, cfg.PrevResult), nil, cfg.CNIVersion)
}

func (v Verbs) del(ctx context.Context, call cni.Call, cfg *cni.Config) *cni.Error {
	var delegate func(context.Context) error
	if d := delegateOf(call, cfg); d != nil {
		delegate = func(ctx context.Context) error { return delegateRun(ctx, *d, call) }
	}
	return explain(v.Engine.Del(ctx, call.Key(cfg.Name), delegate))
}

func (v Verbs) check(ctx context.Context, call cni.Call, cfg *cni.Config) *cni.Error {
	ns, cerr := v.sandbox(call)
	if cerr != nil {
		return cerr
	}
	defer ns.Close()
	want, cerr := expectation(call, cfg.PrevResult)
	if cerr != nil {
		return cerr
	}
	if err := v.Engine.Check(ctx, call.Key(cfg.Name), ns, want); err != nil {
		return explain(err)
	}
	if d := delegateOf(call, cfg); d != nil {
		return explain(delegateRun(ctx, *d, call))
	}
	return nil
}

func (v Verbs) gc(ctx context.Context, call cni.Call, cfg *cni.Config) *cni.Error {
	_, err := v.Engine.Collect(ctx, cfg.Name, facts.Veth, listed(cfg))
	if d := delegateOf(call, cfg); d != nil {
		err = errors.Join(err, delegateRun(ctx, *d, call))
	}
	return explain(err)
}

// listed returns the runtime's list as a predicate; nil where it gave none.
func listed(cfg *cni.Config) func(attach.Key) bool {
	if !cfg.ValidAttachments.Present {
		return nil
	}
	valid := make(map[attach.Key]bool, len(cfg.ValidAttachments.List))
	for _, a := range cfg.ValidAttachments.List {
		valid[attach.Key{Network: cfg.Name, ContainerID: a.ContainerID, Ifname: a.Ifname}] = true
	}
	return func(k attach.Key) bool { return valid[k] }
}

func (v Verbs) status(ctx context.Context, call cni.Call, cfg *cni.Config) *cni.Error {
	if d := delegateOf(call, cfg); d != nil {
		return explain(delegateRun(ctx, *d, call))
	}
	network, cerr := v.Network(cfg)
	if cerr != nil && cerr.Code == cni.CodeTryAgain {
		cerr.Code = cni.CodeUnavailable // what "try again later" of an ADD is for STATUS
	}
	if cerr != nil {
		return cerr
	}
	if err := v.Engine.Ready(ctx, facts.Veth, network); err != nil {
		return &cni.Error{Code: cni.CodeUnavailable, Msg: "ADD cannot succeed now: " + err.Error(), Err: err}
	}
	return nil
}

// firstDNS returns the first that says anything.
func firstDNS(candidates ...cni.DNS) cni.DNS {
	for _, d := range candidates {
		if !d.IsZero() {
			return d
		}
	}
	return cni.DNS{}
}
