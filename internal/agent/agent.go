// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/plugin"
)

// Agent is one running node agent.
type Agent struct {
	config  v1alpha1.AgentConfiguration
	log     *slog.Logger
	store   *journal.Store[*facts.Facts]
	kernel  *kernel.Handle
	engine  *engine.Engine
	network engine.Network
	stop    context.CancelCauseFunc
}

// Run serves until ctx ends, then stops in order: no new calls, the calls in
// flight, the interfaces still to be removed, the journal. It returns an error
// if it cannot start: *journal.OwnedError where another agent has the state
// directory, *journal.CorruptError where the journal is damaged.
func Run(ctx context.Context, c v1alpha1.AgentConfiguration, log *slog.Logger) error {
	a, err := open(ctx, c, log)
	if err != nil {
		return err
	}
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
	background.Go(func() { a.engine.Reaper.Run(a.engine) })
	background.Go(func() { a.maintain(ctx) })
	log.Info("agent ready", "socket", c.Socket, "stateDir", c.StateDir, "subnets", a.network.Pool.Subnets())

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
	pool, err := c.Network.Pool()
	if err != nil {
		return nil, fmt.Errorf("network.ranges: %w", err)
	}
	network := engine.Network{
		Pool: pool, Routes: c.Network.Routes, MTU: c.Network.MTU,
		Masquerade: *c.Network.Masquerade, Cooldown: time.Duration(*c.Network.Cooldown),
	}
	k, err := kernel.Open()
	if err != nil {
		return nil, err
	}
	store, err := journal.Own(ctx, c.StateDir, facts.New)
	if err != nil {
		k.Close()
		return nil, err
	}
	a := &Agent{config: c, log: log, store: store, kernel: k, network: network}
	a.engine = &engine.Engine{
		Store: store, Kernel: k, Delegates: plugin.Delegates{}, Instance: c.StateDir, Now: time.Now, Node: &kernel.Node{},
		Reaper: engine.NewReaper(func(key attach.Key, err error) {
			log.Warn("interface not removed, will retry", "attachment", key.String(), "error", err)
		}),
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
	if err := a.changeNetwork(ctx); err != nil {
		return err
	}
	if err := a.kernel.RestoreNode(*a.engine.Node); err != nil {
		return fmt.Errorf("prepare the node: %w", err)
	}
	a.sweep(ctx)
	return nil
}

// leave removes what the previous network wanted of the node and the present
// one does not.
func (a *Agent) leave(f *facts.Facts) error {
	if f.Config() == "" {
		return nil
	}
	previous, err := engine.RecordedNetwork(f)
	if err != nil {
		// Another release may have written it otherwise; no reason not to start.
		a.log.Warn("previous network unreadable; what it wanted of the node stays", "error", err)
		return nil
	}
	had, err := engine.AgentNode(f, previous)
	if err != nil {
		return err
	}
	if err := a.kernel.RemoveNode(superseded(had, *a.engine.Node)); err != nil {
		return fmt.Errorf("remove the previous network from the node: %w", err)
	}
	a.log.Info("network changed", "from", previous.Pool.Subnets(), "to", a.network.Pool.Subnets())
	return nil
}

// superseded returns what the node had and shall not have any more. A table that
// it shall have is replaced in one transaction later, without a gap.
func superseded(had, wants kernel.Node) kernel.Node {
	if had.Table == wants.Table {
		had.Table = ""
	}
	had.Gateways = slices.DeleteFunc(had.Gateways, func(gw netip.Addr) bool { return slices.Contains(wants.Gateways, gw) })
	return had
}

// changeNetwork writes the effective network to the journal where it changed,
// so that the shim can serve calls without the agent, and removes from the node
// what only the previous one wanted.
func (a *Agent) changeNetwork(ctx context.Context) error {
	raw, err := json.Marshal(a.network)
	if err != nil {
		return err
	}
	return a.store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		if *a.engine.Node, err = engine.AgentNode(f, a.network); err != nil {
			return nil, err
		}
		if f.Config() == string(raw) {
			return nil, nil
		}
		if err := a.leave(f); err != nil {
			return nil, err
		}
		entry, err := facts.EncodeConfig(time.Now().UnixNano(), string(raw))
		return []string{entry}, err
	})
}

// maintain collects garbage and restores the node's objects, periodically.
func (a *Agent) maintain(ctx context.Context) {
	tick := time.NewTicker(time.Duration(*a.config.GC.Interval))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.restoreNode()
			a.sweep(ctx)
		}
	}
}

// restoreNode brings back what somebody else removed, such as `nft flush
// ruleset`.
func (a *Agent) restoreNode() {
	node := *a.engine.Node
	before, err := a.kernel.CompareNode(node)
	if err == nil && len(before) == 0 {
		return
	}
	err = errors.Join(err, a.kernel.RestoreNode(node))
	after, cerr := a.kernel.CompareNode(node)
	if err = errors.Join(err, cerr); err != nil || len(after) > 0 {
		a.log.Warn("node not as it should be, will retry", "differences", after, "error", err)
		return
	}
	a.log.Info("node restored", "differences", before)
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
