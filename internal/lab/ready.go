// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Deadlines from the start of agents until they are ready. One agent alone
// needs some tens of milliseconds; many that start at once share the
// processors.
const (
	readyDeadline = 10 * time.Second
	readyPerNode  = 500 * time.Millisecond
	syncDeadline  = 10 * time.Second
)

// startNodes starts the agents of nodes, all before the first is waited for,
// and returns when the network is ready. A thin lab has nothing to start.
func (l *lab) startNodes(ctx context.Context, nodes ...Node) error {
	agents := map[string]process{}
	for _, n := range nodes {
		if err := l.configure(n); err != nil {
			return err
		}
		if !l.spec.agents() {
			continue
		}
		agent, err := l.startAgent(n)
		if err != nil {
			return err
		}
		agents[n.Name] = agent
	}
	return l.waitNetwork(ctx, nodes, agents)
}

// waitNetwork returns when the network is ready: the started nodes take pods,
// and each has told the others where its pods are.
func (l *lab) waitNetwork(ctx context.Context, started []Node, agents map[string]process) error {
	limit := readyDeadline + time.Duration(len(started))*readyPerNode
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, n := range started {
		r, err := l.runtime(n)
		if err != nil {
			return err
		}
		ready := func() error { return r.status(ctx) }
		if !l.spec.agents() {
			if err := ready(); err != nil {
				return fmt.Errorf("%s: status of the network: %w", n.Name, err)
			}
		} else if err := l.await(ctx, n, agents[n.Name], ready); err != nil {
			return err
		}
		if err := l.await(ctx, n, agents[n.Name], func() error { return l.leased(n) }); err != nil {
			return err
		}
		l.say("%s: network %s is ready", n.Name, r.list.Name)
	}
	return l.waitSync(ctx, started)
}

// waitSync returns when the agents of nodes have brought their kernels to what
// the registry says, which needs all of them to hold their leases. Nodes whose
// agent does not run are passed over.
func (l *lab) waitSync(ctx context.Context, nodes []Node) error {
	if !l.spec.agents() {
		return nil
	}
	for _, n := range nodes {
		_, runs, err := l.agent(n.Name)
		if err != nil {
			return err
		}
		if !runs {
			continue
		}
		var said bytes.Buffer
		cmd := exec.CommandContext(ctx, filepath.Join(l.BinDir, "weft"), "status", "--wait", syncDeadline.String(), "--state-dir", l.l.state(n.Name))
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := startIn(l.l.netns(n.Name), cmd); err != nil {
			return fmt.Errorf("%s: ask whether the network is in sync: %w", n.Name, err)
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%s: the network is not in sync: %w: %s; the end of the agent's log: %s",
				n.Name, errors.Join(ctx.Err(), err), strings.TrimSpace(said.String()), l.logTail(n.Name))
		}
	}
	if len(nodes) > 1 {
		l.say("the network between the nodes is in sync")
	}
	return nil
}

// await polls until ready says so. An agent that ended meanwhile is reported at
// once, with the end of its log.
func (l *lab) await(ctx context.Context, n Node, agent process, ready func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		notReady := ready()
		if notReady == nil {
			return nil
		}
		if !agent.alive() {
			agent.collect()
			return fmt.Errorf("%s: the agent (process %d) ended while starting; the end of its log: %s",
				n.Name, agent.PID, l.logTail(n.Name))
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("%s: wait for the network: %w", n.Name, ctx.Err())
			}
			return fmt.Errorf("%s: the network is not ready in time: %w; the end of the agent's log: %s",
				n.Name, notReady, l.logTail(n.Name))
		case <-tick.C:
		}
	}
}

// leased verifies that the node holds a lease out of each subnet of the lab.
func (l *lab) leased(n Node) error {
	if !l.spec.agents() {
		return nil
	}
	leases, err := l.l.leases()
	if err != nil {
		return err
	}
	for _, p := range l.spec.Subnets {
		if !holds(leases, n.Name, p) {
			return fmt.Errorf("%s holds no lease of %s", n.Name, p)
		}
	}
	return nil
}

func holds(leases []lease, node string, pool netip.Prefix) bool {
	for _, one := range leases {
		if one.of(node) && pool.Contains(one.Spec.Subnet.Addr()) {
			return true
		}
	}
	return false
}
