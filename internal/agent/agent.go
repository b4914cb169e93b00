// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/install"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/metrics"
	"weft.dev/weft/internal/plugin"
	"weft.dev/weft/internal/timeline"
)

// Agent is one running node agent.
type Agent struct {
	file    string // of the configuration; "" if it does not come from one
	log     *slog.Logger
	level   *slog.LevelVar
	store   *journal.Store[*facts.Facts]
	kernel  *kernel.Handle
	engine  *engine.Engine
	fabric  *fabric.Fabric
	cluster *membership // nil without a cluster
	stop    context.CancelCauseFunc

	collected struct {
		mu    sync.Mutex
		count map[string]uint64 // what garbage collection did, by action
	}
	version  string
	metrics  *metrics.Metrics
	timeline *timeline.Recorder
	exporter *timeline.Exporter // nil: nobody wants spans

	governor
}

// Run serves until ctx ends, then stops in order: no new calls, the calls in
// flight, the interfaces still to be removed, the journal. file is where c was
// read from; what changes there takes effect live. Run returns an error if it
// cannot start or cannot go on: *journal.OwnedError where another agent has the
// state directory, *journal.CorruptError where the journal is damaged,
// *journal.LostError where the state directory is gone.
func Run(ctx context.Context, c v1alpha1.AgentConfiguration, file, version string, log *slog.Logger, level *slog.LevelVar) error {
	if err := install.WritableSysctls(); err != nil {
		return err
	}
	a, err := open(ctx, c, version, log)
	if err != nil {
		return err
	}
	a.file, a.level = file, level
	defer a.close()
	parent := ctx
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
	a.running = true
	background.Go(func() { a.fabric.Run(ctx, log) })
	background.Go(func() { a.engine.Reaper.Run(a.engine) })
	background.Go(func() { a.maintain(ctx) })
	background.Go(func() { a.followKernel(ctx) })
	background.Go(func() { a.govern(ctx) })
	if a.cluster != nil {
		background.Go(func() { a.follow(ctx) })
		background.Go(func() { a.watchPods(ctx) })
	}
	if c.Listen != "" {
		background.Go(func() { a.answerHTTP(ctx, c.Listen) })
	}
	log.Info("agent ready", "socket", c.Socket, "stateDir", c.StateDir, "subnets", a.network.Load().Pool.Subnets())

	server.serve(ctx, a.answer)
	a.engine.Reaper.Close()
	background.Wait()
	log.Info("agent stopped", "note", "pods keep their network")
	if parent.Err() == nil {
		return context.Cause(ctx) // what made it stop by itself
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

func open(ctx context.Context, c v1alpha1.AgentConfiguration, version string, log *slog.Logger) (*Agent, error) {
	k, err := kernel.Open()
	if err != nil {
		return nil, err
	}
	store, err := journal.Own(ctx, c.StateDir, facts.New)
	if err != nil {
		k.Close()
		return nil, err
	}
	a := &Agent{log: log, store: store, kernel: k, version: version}
	a.begin(c)
	a.collected.count = map[string]uint64{}
	a.metrics = metrics.New(a.snapshot, version)
	if err := a.trace(ctx); err != nil {
		a.close()
		return nil, err
	}
	a.engine = &engine.Engine{
		Store: store, Kernel: k, Delegates: plugin.Delegates{}, Instance: c.StateDir, Now: time.Now,
		Node: func() kernel.Node { return a.network.Load().node },
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
	if a.timeline != nil {
		a.timeline.Close()
	}
	if a.exporter != nil {
		a.exporter.Close()
	}
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
	a.readUnderlay(time.Now())
	if err := a.apply(ctx); err != nil {
		return err
	}
	a.tell()
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
		case <-time.After(time.Duration(*a.seen.Load().config.GC.Interval)):
			a.sweep(ctx)
		}
	}
}

func (a *Agent) sweep(ctx context.Context) {
	findings, err := a.engine.Sweep(ctx)
	for _, f := range findings {
		a.collected.mu.Lock()
		a.collected.count[f.Action]++
		a.collected.mu.Unlock()
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

// network is what ADD attaches pods to, and what the node needs for them. It is
// replaced as a whole.
type network struct {
	engine.Network
	node kernel.Node
}

// governor is what decides about the node's network: inputs, and what follows
// from them. One goroutine has it, but for the atomic values, by which others
// see the result.
type governor struct {
	inputs  inputs
	running bool          // the fabric runs
	applied bool          // network follows from inputs
	self    topology.Self // as the fabric was told
	// former are MTUs that pods may still have.
	former map[int]struct{}
	// looked is when the configuration file, the underlay and the MTUs were
	// last seen to.
	looked struct {
		file, underlay, pods, mended, proclaimed time.Time
		addresses                                []netip.Addr // that were looked for
	}
	// read is what the last look at the registry found besides inputs.
	read struct {
		revision uint64
		synced   bool
		outside  []netip.Prefix  // blocks that are in no pool
		single   []cluster.Lease // this node's leases of single addresses
	}
	beginning, proclaiming, givingBack attempts
	content                            content // of the configuration file

	network    atomic.Pointer[network]
	seen       atomic.Pointer[inputs]
	unready    atomic.Pointer[string]       // why no pod can be attached; "": one can
	kept       atomic.Pointer[wish.Holders] // addresses that pods have to themselves
	moved      atomic.Bool                  // this node's place may have changed
	passed     atomic.Int64                 // when the last pass ended, Unix time in nanoseconds
	proclaimed atomic.Bool                  // runtime and cluster know that pods can be attached
	foreign    atomic.Pointer[[]string]     // network configurations of others
	poke       chan struct{}                // has an element when there is something to decide

	// What goes wrong now, for status and log.
	configuration, lost, late, torn, leftover, unproclaimed, rivals, poolless trouble
}

func (g *governor) begin(c v1alpha1.AgentConfiguration) {
	g.inputs, g.former, g.poke = inputs{config: c}, map[int]struct{}{}, make(chan struct{}, 1)
	g.kept.Store(&wish.Holders{})
}
