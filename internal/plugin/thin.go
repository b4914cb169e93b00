// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
)

// local is an engine in this process, on a journal shared with others.
type local struct {
	engine *engine.Engine
	store  *journal.Store[*facts.Facts]
	kernel *kernel.Handle
	dir    string
}

func openLocal(dir string) (*local, error) {
	store, err := journal.Share(dir, facts.New)
	if err != nil {
		return nil, err
	}
	k, err := kernel.Open()
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &local{
		engine: &engine.Engine{Store: store, Kernel: k, Delegates: Delegates{}, Instance: dir, Now: time.Now},
		store:  store, kernel: k, dir: dir,
	}, nil
}

func (l *local) close() {
	l.kernel.Close()
	_ = l.store.Close()
}

// thin serves a call of weft-cni in this process, from its configuration.
func thin(ctx context.Context, call cni.Call, cfg *cni.Config) ([]byte, *cni.Error, func()) {
	l, err := openLocal(cfg.StateDir)
	if err != nil {
		return nil, explain(err), nil
	}
	v := Verbs{Engine: l.engine, Network: networkOf, OpenNetns: kernel.OpenNetns}
	if cfg.IPAM != nil {
		v.DNS = ipamDNS(cfg.IPAM)
	}
	out, cerr := v.Serve(ctx, call, cfg)
	return out, cerr, func() {
		l.sweep(ctx, call)
		l.close()
	}
}

// networkOf reads the network from the configuration of a thin plugin.
func networkOf(cfg *cni.Config) (engine.Network, *cni.Error) {
	n := engine.Network{Name: cfg.Name, MTU: cfg.MTU, Masquerade: cfg.IPMasq}
	if cfg.IPAM == nil {
		return n, cni.Errorf(cni.CodeConfig, "ipam: missing")
	}
	n.Pool, n.Routes, n.Cooldown = cfg.IPAM.Pool, cfg.IPAM.Routes, cfg.IPAM.Cooldown
	n.Avoid = hostLocalReserved(cfg.IPAM.DataDir, cfg.Name)
	return n, nil
}

// sweepEvery is how often some call of a thin plugin also collects garbage: no
// runtime asks for it, and there is no daemon.
const (
	sweepEvery = time.Minute
	sweepMost  = 500 * time.Millisecond
)

// sweep collects garbage after the call has been answered, if it is due. The
// time stamp is taken before the work, so that only one of many processes
// does it.
func (l *local) sweep(ctx context.Context, call cni.Call) {
	if call.Command != cni.Add && call.Command != cni.Del {
		return
	}
	stamp := filepath.Join(l.dir, "swept")
	now := time.Now()
	if st, err := os.Stat(stamp); err == nil && now.Sub(st.ModTime()) < sweepEvery {
		return
	}
	if err := os.WriteFile(stamp, nil, 0o600); err != nil {
		return
	}
	if err := os.Chtimes(stamp, now, now); err != nil {
		return
	}
	// The runtime waits for this process to end: what is not done in time is
	// done by a later call.
	ctx, cancel := context.WithTimeout(ctx, sweepMost)
	defer cancel()
	findings, err := l.engine.Sweep(ctx)
	for _, f := range findings {
		fmt.Fprintln(os.Stderr, "weft-cni: garbage collection:", f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "weft-cni: garbage collection:", err)
	}
}

// offline serves a call of a thick plugin in this process, because the agent
// is down: on the agent's journal, with what it last wrote of its network.
func offline(ctx context.Context, call cni.Call, cfg *cni.Config) ([]byte, *cni.Error) {
	l, err := openLocal(cfg.StateDir)
	if err != nil {
		return nil, explain(err)
	}
	defer l.close()
	network, err := recordedNetwork(ctx, l.store)
	if err != nil {
		return nil, explain(err)
	}
	if len(network.Pool.Sets) > 0 {
		// The node's objects are the agent's, and stay while it is down.
		l.engine.Node = func() kernel.Node { return kernel.Node{} }
	}
	v := Verbs{
		Engine:    l.engine,
		OpenNetns: kernel.OpenNetns,
		Network:   func(cfg *cni.Config) (engine.Network, *cni.Error) { return offlineNetwork(network, cfg) },
	}
	return v.Serve(ctx, call, cfg)
}

// offlineNetwork returns the network of an ADD without the agent. Where pods ask
// for addresses and keep them, none can be given without asking who does.
func offlineNetwork(recorded engine.Network, cfg *cni.Config) (engine.Network, *cni.Error) {
	switch {
	case recorded.Cluster == engine.Kubernetes:
		return recorded, cni.Errorf(cni.CodeTryAgain, "the agent is down, and only it knows what the pod asks of its network and which "+
			"pod keeps which address; so offlineAdd has no effect on a node of a Kubernetes cluster: start the agent")
	case len(recorded.Pool.Sets) == 0:
		return recorded, cni.Errorf(cni.CodeTryAgain, "the agent is down and has never recorded its network in %s: start it", cfg.StateDir)
	}
	return recorded.Ordinary().For(cfg.Name, cfg.MTU), nil
}

func recordedNetwork(ctx context.Context, store engine.Store) (n engine.Network, err error) {
	err = store.View(ctx, func(f *facts.Facts) error {
		n, err = engine.RecordedNetwork(f)
		return err
	})
	return n, err
}
