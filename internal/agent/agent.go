// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	if err := a.recover(ctx); err != nil {
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
	return nil
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
	node := nodeOf(network)
	a := &Agent{config: c, log: log, store: store, kernel: k, network: network}
	a.engine = &engine.Engine{
		Store: store, Kernel: k, Delegates: plugin.Delegates{}, Instance: c.StateDir, Now: time.Now, Node: &node,
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

// nodeOf returns what the node itself needs: every gateway of the ranges
// answered for, and the table that masquerades.
func nodeOf(n engine.Network) kernel.Node {
	var addrs []attach.Address
	for _, set := range n.Pool.Sets {
		for _, r := range set {
			addrs = append(addrs, attach.Address{Addr: r.First, Subnet: r.Subnet, Gateway: r.Gateway})
		}
	}
	return engine.Node("", n.Masquerade, n.Pool.Subnets(), addrs)
}

// recover makes facts and kernel agree before the first call is taken.
func (a *Agent) recover(ctx context.Context) error {
	if err := a.recordNetwork(ctx); err != nil {
		return err
	}
	if err := a.engine.Kernel.EnsureNode(*a.engine.Node); err != nil {
		return fmt.Errorf("prepare the node: %w", err)
	}
	a.sweep(ctx)
	return nil
}

// recordNetwork writes the effective network to the journal where it changed,
// so that the shim can serve calls without the agent.
func (a *Agent) recordNetwork(ctx context.Context) error {
	raw, err := json.Marshal(a.network)
	if err != nil {
		return err
	}
	return a.store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		if f.Config() == string(raw) {
			return nil, nil
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
	differences, err := a.kernel.CompareNode(*a.engine.Node)
	if err == nil && len(differences) == 0 {
		return
	}
	err = errors.Join(err, a.kernel.EnsureNode(*a.engine.Node))
	a.log.Warn("node restored", "differences", differences, "error", err)
}

func (a *Agent) sweep(ctx context.Context) {
	findings, err := a.engine.Sweep(ctx)
	for _, f := range findings {
		a.log.Info("garbage collected", "attachment", f.Key.String(), "addresses", f.Addresses,
			"observed", f.Observed, "action", f.Action, "error", f.Err)
	}
	if err != nil {
		a.log.Warn("garbage collection incomplete, will retry", "error", err)
	}
}
