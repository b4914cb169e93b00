// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/registry"
)

const (
	// lookInterval is the longest time between two passes.
	lookInterval = time.Second
	// breath is the shortest: what comes in a burst, such as pods that start
	// together, is one pass and not one each.
	breath = 20 * time.Millisecond
	// nodePatience bounds how long pods wait for the node's own objects.
	nodePatience = 2 * time.Second
	// mendInterval is how often pods' objects on the host's side are seen to.
	mendInterval = 20 * time.Second
	// podInterval is how long a pod whose MTU could not be changed waits for
	// the next attempt.
	podInterval = 30 * time.Second
)

// govern decides about the node's network until ctx ends. Each pass derives it
// anew from what there is by then, so that nothing is missed and whatever
// failed is tried again.
func (a *Agent) govern(ctx context.Context) {
	var changes *registry.Subscription
	var changed <-chan struct{}
	if a.cluster != nil {
		changes = a.cluster.objects.Subscribe(registry.Node, registry.IPPool, registry.SubnetLease, registry.AddressClaim)
		changed = changes.C
	}
	for ctx.Err() == nil {
		next := a.pass(ctx, time.Now())
		pause(ctx, breath)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-a.poke:
		case <-timer.C:
		case <-changed:
			changes.Take() // which ones does not matter
		}
		timer.Stop()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// wake has govern make a pass.
func (a *Agent) wake() {
	select {
	case a.poke <- struct{}{}:
	default:
	}
}

// pass decides once, and returns when to do so again at the latest.
func (a *Agent) pass(ctx context.Context, now time.Time) time.Time {
	next := now.Add(lookInterval)
	a.readConfiguration(now)
	a.readCluster()
	a.readUnderlay(now)
	err := a.apply(ctx)
	if ctx.Err() == nil {
		a.late.note(a.log, "network not changed", err)
	}
	a.check(err)
	if a.inputs.synced {
		a.beginPools(ctx, now)
		if due := a.cluster.keeper.Step(ctx, now); due.Before(next) {
			next = due
		}
		if a.givingBack.due(now) {
			err := a.giveBack(ctx)
			a.givingBack.done(now, err)
			a.leftover.note(a.log, "leases of addresses not given back", err)
		}
	}
	a.resize(ctx, now)
	a.mend(ctx, now)
	a.tell()
	a.proclaim(ctx, now)
	a.passed.Store(time.Now().UnixNano())
	return next
}

// beginPools sees to the first pool. Why there is none is told wherever somebody
// looks who misses it: no node has addresses without.
func (a *Agent) beginPools(ctx context.Context, now time.Time) {
	var err error
	switch begins := a.cluster.begins(); {
	case !a.inContact(), begins && !a.beginning.due(now):
		return
	case begins:
		if err = a.cluster.begin(ctx); err != nil {
			err = fmt.Errorf("create the first IPPool, as cluster.initialPool has it: %w", err)
		}
	}
	a.beginning.done(now, err)
	if err != nil && a.poolless.now() == nil {
		a.tellNode("InitialPoolNotCreated", err.Error())
	}
	a.poolless.note(a.log, "no first IPPool", err)
}

// tell lets others see the state of things.
func (a *Agent) tell() {
	seen := a.inputs
	a.seen.Store(&seen)
	why := a.whyNot()
	a.unready.Store(&why)
}

// apply makes the node's network what follows from the inputs. If it fails, it
// is for the next pass.
func (a *Agent) apply(ctx context.Context) error {
	var next network
	err := a.store.View(ctx, func(f *facts.Facts) (err error) {
		if next.Network, err = a.inputs.network(); err != nil {
			return err
		}
		if next.MTU == 0 {
			if next.MTU, err = a.kernel.UplinkMTU(); err != nil {
				return err
			}
		}
		next.node, err = engine.AgentNode(f, next.Network)
		return err
	})
	if err != nil {
		return err
	}
	next.Avoid = a.notGranted
	now := a.network.Load()
	if now == nil || !reflect.DeepEqual(now.node, next.node) || !a.applied {
		a.applied = false
		a.fabric.SetNode(nodeObjects(next.node))
		a.awaitNode(ctx)
	}
	if err := a.publish(ctx, next); err != nil {
		return err
	}
	a.applied = true
	return nil
}

// awaitNode waits until the node masquerades and forwards what it shall: a flow
// that begins before would keep the pod's address for as long as it lasts.
func (a *Agent) awaitNode(ctx context.Context) {
	if !a.running {
		return // nobody carries it out yet, and nobody is served
	}
	waiting, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	if err := a.fabric.Wait(waiting, fabric.Sysctls, fabric.NAT); err != nil && ctx.Err() == nil {
		a.log.Warn("the node's own objects are late, pods start without them", "error", err)
	}
}

// publish makes the network the one that ADD uses, and the journal's, for the
// shim that serves calls while the agent is down.
func (a *Agent) publish(ctx context.Context, next network) error {
	raw, err := json.Marshal(next.Network)
	if err != nil {
		return err
	}
	var before engine.Network
	changed := false
	err = a.store.Update(ctx, func(f *facts.Facts) (entries []string, err error) {
		a.network.Store(&next)
		if f.Config() == string(raw) {
			return nil, nil
		}
		changed = true
		if before, err = engine.RecordedNetwork(f); err != nil {
			// Another release may have written it otherwise; no reason to stop.
			a.log.Warn("the network in the journal is unreadable; pods keep the MTU they have", "error", err)
		}
		entry, err := facts.EncodeConfig(time.Now().UnixNano(), string(raw))
		return []string{entry}, err
	})
	if err != nil || !changed {
		return err
	}
	if before.MTU != 0 && before.MTU != next.MTU {
		a.former[before.MTU] = struct{}{}
	}
	if from, to := before.Pool.String(), next.Pool.String(); from != to {
		a.log.Info("network changed", "from", before.Pool.Subnets(), "to", next.Pool.Subnets())
	}
	return nil
}

// mend puts back what somebody took from the host's side of pods.
func (a *Agent) mend(ctx context.Context, now time.Time) {
	if now.Sub(a.looked.mended) < mendInterval {
		return
	}
	a.looked.mended = now
	mended, err := a.engine.Mend(ctx)
	for _, k := range mended {
		a.log.Info("attachment mended", "attachment", k.String(), "note", "somebody took routes, neighbours or the interface's state away")
	}
	if ctx.Err() == nil {
		a.torn.note(a.log, "attachments not mended", err)
	}
}

// resize gives pods that have a former MTU the present one.
func (a *Agent) resize(ctx context.Context, now time.Time) {
	to := a.network.Load().MTU
	delete(a.former, to)
	if len(a.former) == 0 || now.Before(a.looked.pods) {
		return
	}
	a.looked.pods = now.Add(podInterval)
	for from := range a.former {
		n, err := a.engine.Resize(ctx, from, to)
		a.log.Info("MTU changed", "from", from, "to", to, "pods", n, "error", err)
		if err == nil {
			delete(a.former, from)
		}
	}
	if len(a.former) == 0 {
		a.looked.pods = time.Time{}
	}
}

// restore takes from the journal what serves until the registry has answered.
func (a *Agent) restore(ctx context.Context) error {
	return a.store.View(ctx, func(f *facts.Facts) error {
		n, err := engine.RecordedNetwork(f)
		if err != nil {
			a.log.Warn("the network in the journal is unreadable; it is made anew", "error", err)
			return nil
		}
		if n.Cluster == clusterName(a.inputs.config.Cluster) {
			a.inputs.restored = &n
		}
		return nil
	})
}

// attempts spaces the attempts at something that the registry refuses: a pass
// may follow the other within milliseconds.
type attempts struct {
	failed int
	next   time.Time
}

func (a *attempts) due(now time.Time) bool { return !now.Before(a.next) }

// done notes how an attempt ended. After a failure the next is a second later,
// then two, up to a minute.
func (a *attempts) done(now time.Time, err error) {
	if err == nil {
		*a = attempts{}
		return
	}
	a.next = now.Add(min(time.Second<<min(a.failed, 6), time.Minute))
	a.failed++
}

// trouble is something that goes wrong until it is over. It is logged once.
type trouble struct {
	mu  sync.Mutex
	err error
}

func (t *trouble) note(log *slog.Logger, what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil && t.err != nil:
		log.Info(what + ": well again")
	case err != nil && (t.err == nil || t.err.Error() != err.Error()):
		log.Warn(what+", will retry", "error", err)
	}
	t.err = err
}

func (t *trouble) now() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
