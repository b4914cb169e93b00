// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/plugin"
)

// Agent is one running node agent.
type Agent struct {
	file     string // of the configuration; "" if it does not come from one
	log      *slog.Logger
	logLevel *slog.LevelVar
	store    *journal.Store[*facts.Facts]
	kernel   *kernel.Handle
	engine   *engine.Engine
	fabric   *fabric.Fabric
	cluster  *membership // nil without a cluster
	stop     context.CancelCauseFunc

	// inputs is what network and node follow from. Whoever changes it holds
	// changing until they do again.
	changing sync.Mutex
	inputs   inputs
	started  bool // the fabric runs
	network  atomic.Pointer[engine.Network]
	node     atomic.Pointer[kernel.Node]
	// moved has an element when this node's place in the underlay may have
	// changed.
	moved chan struct{}
	// What goes wrong now, for status and log.
	configuration, lost trouble
}

// Run serves until ctx ends, then stops in order: no new calls, the calls in
// flight, the interfaces still to be removed, the journal. file is where c was
// read from; what changes there takes effect live. Run returns an error if it
// cannot start: *journal.OwnedError where another agent has the state
// directory, *journal.CorruptError where the journal is damaged.
func Run(ctx context.Context, c v1alpha1.AgentConfiguration, file string, log *slog.Logger, level *slog.LevelVar) error {
	a, err := open(ctx, c, log)
	if err != nil {
		return err
	}
	a.file, a.logLevel = file, level
	defer a.close()
	ctx, a.stop = context.WithCancelCause(ctx)
	defer a.stop(nil)
	if err := a.recovered(ctx); err != nil {
		return err
	}
	server, err := listen(c.Socket)
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	a.started = true
	background.Go(func() { a.fabric.Run(ctx, log) })
	background.Go(func() { a.engine.Reaper.Run(a.engine) })
	background.Go(func() { a.maintain(ctx) })
	background.Go(func() { a.followKernel(ctx) })
	background.Go(func() { a.followUnderlay(ctx) })
	if file != "" {
		background.Go(func() { a.followConfiguration(ctx) })
	}
	if a.cluster != nil {
		background.Go(func() { a.cluster.follow(ctx, a) })
		background.Go(func() { a.cluster.keepLeases(ctx) })
		background.Go(func() { a.followPools(ctx) })
	}
	log.Info("agent ready", "socket", c.Socket, "stateDir", c.StateDir, "subnets", a.network.Load().Pool.Subnets())

	server.serve(ctx, a.answer)
	a.engine.Reaper.Close()
	background.Wait()
	log.Info("agent stopped", "note", "pods keep their network")
	var lost *journal.LostError
	if errors.As(context.Cause(ctx), &lost) {
		return lost
	}
	return nil
}

// check ends the agent if its state directory is gone: it could record nothing
// any more, and another agent could start beside it. Whoever restarts it has
// it take back every interface that exists.
func (a *Agent) check(err error) {
	var lost *journal.LostError
	if errors.As(err, &lost) {
		a.stop(lost)
	}
}

func open(ctx context.Context, c v1alpha1.AgentConfiguration, log *slog.Logger) (*Agent, error) {
	k, err := kernel.Open()
	if err != nil {
		return nil, err
	}
	store, err := journal.Own(ctx, c.StateDir, facts.New)
	if err != nil {
		k.Close()
		return nil, err
	}
	a := &Agent{log: log, store: store, kernel: k, inputs: inputs{config: c}, moved: make(chan struct{}, 1)}
	a.configuration.what = "configuration file not in effect"
	a.lost.what = "no address on the underlay"
	a.network.Store(&engine.Network{})
	a.node.Store(&kernel.Node{})
	a.engine = &engine.Engine{
		Store: store, Kernel: k, Delegates: plugin.Delegates{}, Instance: c.StateDir, Now: time.Now,
		Node: func() kernel.Node { return *a.node.Load() },
		Reaper: engine.NewReaper(func(key attach.Key, err error) {
			log.Warn("interface not removed, will retry", "attachment", key.String(), "error", err)
		}),
	}
	if err := a.join(ctx); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *Agent) close() {
	if err := a.store.Close(); err != nil {
		a.log.Warn("journal not closed", "error", err)
	}
	a.kernel.Close()
}

// recovered makes facts and kernel agree before the first call is taken.
func (a *Agent) recovered(ctx context.Context) error {
	for _, torn := range a.store.Recovered() {
		a.log.Warn("journal had an unfinished line", "cut", torn.String())
	}
	a.readUnderlay()
	if err := a.changeNetwork(ctx, func(*inputs) {}); err != nil {
		return err
	}
	a.fabric.Step(time.Now())
	a.sweep(ctx)
	return nil
}

// maintain collects garbage, periodically.
func (a *Agent) maintain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(*a.config().GC.Interval)):
			a.sweep(ctx)
		}
	}
}

func (a *Agent) sweep(ctx context.Context) {
	findings, err := a.engine.Sweep(ctx)
	for _, f := range findings {
		a.log.Info("garbage collected", "attachment", f.Key.String(), "addresses", f.Addresses,
			"observed", f.Observed, "action", f.Action, "error", f.Err)
	}
	if err != nil {
		a.log.Warn("garbage collection incomplete, will retry", "error", err)
		a.check(err)
	}
	if err := a.store.CompactionErr(); err != nil {
		a.log.Warn("journal not compacted, will retry", "error", err)
	}
}
