// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/leasing"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/directory"
)

// membership is this node's part in a cluster.
type membership struct {
	node     string // this node's name
	registry registry.Cluster
	objects  *registry.Store
	keeper   *leasing.Keeper
	changes  *registry.Subscription // what the keeper decides by
	// used has an element when addresses were given out or came back.
	used chan struct{}
}

// join wires the agent to its cluster, if it has one, and to the kernel.
func (a *Agent) join(ctx context.Context) error {
	c := a.inputs.config
	drivers := a.drivers()
	if c.Cluster == nil {
		a.fabric = fabric.New(nil, drivers)
		return nil
	}
	dir, err := directory.Open(c.Cluster.Directory, a.log)
	if err != nil {
		return err
	}
	m := &membership{node: c.NodeName, registry: dir, objects: registry.NewStore(), used: make(chan struct{}, 1)}
	m.changes = m.objects.Subscribe(registry.Node, registry.IPPool, registry.SubnetLease)
	previous, err := a.restore(ctx)
	if err != nil {
		return err
	}
	a.fabric = fabric.New(m.objects, drivers)
	config := leasing.Config{Node: c.NodeName, IdleAfter: time.Duration(*c.Cluster.LeaseIdleAfter), Previous: previous}
	m.keeper = leasing.New(config, m.objects, m.registry, (*addresses)(a), a.identity, a.fabric.Rejected)
	a.cluster = m
	return nil
}

// restore takes the ranges from the journal, and the blocks that pods have
// addresses of.
func (a *Agent) restore(ctx context.Context) (previous []netip.Prefix, err error) {
	err = a.store.View(ctx, func(f *facts.Facts) error {
		n, err := engine.RecordedNetwork(f)
		if err != nil {
			a.log.Warn("the network in the journal is unreadable; it is made anew", "error", err)
			return nil
		}
		if len(n.Pool.Sets) > 0 {
			a.inputs.restored = &n.Pool
		}
		previous = n.Pool.Subnets()
		return nil
	})
	return previous, err
}

// follow keeps the objects current.
func (m *membership) follow(ctx context.Context, a *Agent) {
	if err := m.registry.Run(ctx, m.objects); err != nil && ctx.Err() == nil {
		a.stop(fmt.Errorf("registry: %w", err))
	}
}

// leasePause is the least time between two looks at the leases: pods that
// start in a burst call for one, not for one each.
const leasePause = 50 * time.Millisecond

// keepLeases steps the keeper whenever something changed that it decides by.
func (m *membership) keepLeases(ctx context.Context) {
	for ctx.Err() == nil {
		next := m.keeper.Step(ctx, time.Now())
		pause(ctx, leasePause)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-m.changes.C:
		case <-m.used:
		case <-timer.C:
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

// kick has the keeper look again.
func (m *membership) kick() {
	select {
	case m.used <- struct{}{}:
	default:
	}
}

// identity is what this node's leases tell its peers.
func (a *Agent) identity() leasing.Identity {
	a.changing.Lock()
	defer a.changing.Unlock()
	var id leasing.Identity
	for _, u := range a.inputs.underlay {
		id.Addresses = append(id.Addresses, u.Addr.Addr())
	}
	c := a.inputs.config
	if c.Network.Backend.Type != topology.Native {
		id.VTEP = cluster.VTEP{
			MAC: cluster.VTEPMAC(a.cluster.node), VNI: uint32(c.Network.Backend.VNI), Port: uint16(c.Network.Backend.Port),
		}
	}
	return id
}

// followPools follows the objects that the node's own network depends on:
// pools, the node's own object, and leases outside of pools.
func (a *Agent) followPools(ctx context.Context) {
	sub := a.cluster.objects.Subscribe(registry.Node, registry.IPPool, registry.SubnetLease)
	for {
		select {
		case <-ctx.Done():
			return
		case <-sub.C:
		}
		if !a.concerned(sub.Take()) {
			continue
		}
		pools, outside, synced := a.poolsNow()
		if !synced {
			continue
		}
		err := a.changeNetwork(ctx, func(in *inputs) { in.pools, in.outside = pools, outside })
		if err != nil {
			a.log.Warn("network not changed, will retry with the next change", "error", err)
			a.check(err)
		}
		a.move()
	}
}

// concerned reports whether one of the objects can change the node's own
// network. A lease that is inside a pool cannot, and there may be thousands.
func (a *Agent) concerned(keys []registry.Key) bool {
	concerned := false
	a.cluster.objects.View(func(s *registry.State) {
		concerned = slices.ContainsFunc(keys, func(k registry.Key) bool {
			switch k.Kind {
			case registry.Node:
				return k.Name == a.cluster.node
			case registry.SubnetLease:
				l, there := s.Leases[k.Name]
				return !there || l.Pool == ""
			}
			return true
		})
	})
	return concerned
}

func (a *Agent) poolsNow() (pools []cluster.Pool, outside []netip.Prefix, synced bool) {
	a.cluster.objects.View(func(s *registry.State) {
		synced = s.Synced
		all := make([]cluster.Pool, 0, len(s.Pools))
		for _, p := range s.Pools {
			all = append(all, p)
		}
		pools, _ = cluster.AcceptPools(all)
		for _, l := range s.Leases {
			if l.Pool == "" && !inside(l.Subnet, pools) {
				outside = append(outside, l.Subnet)
			}
		}
	})
	slices.SortFunc(outside, netip.Prefix.Compare)
	return pools, outside, synced
}

func inside(subnet netip.Prefix, pools []cluster.Pool) bool {
	for _, p := range pools {
		for _, r := range p.Ranges {
			if r.CIDR.Bits() <= subnet.Bits() && r.CIDR.Overlaps(subnet) {
				return true
			}
		}
	}
	return false
}

// addresses is the agent as the keeper sees it.
type addresses Agent

// Blocks implements leasing.Addresses.
func (s *addresses) Blocks(now time.Time) ([]lease.Block, error) {
	a := (*Agent)(s)
	a.changing.Lock()
	draining := a.inputs.draining
	a.changing.Unlock()
	n := a.network.Load()
	var blocks []lease.Block
	err := a.store.View(context.Background(), func(f *facts.Facts) error {
		u := f.Usage(facts.Veth, "")
		for _, set := range n.Pool.Sets {
			for _, r := range set {
				blocks = append(blocks, blockOf(u, r, now, n.Cooldown))
			}
		}
		for _, subnet := range draining {
			r, err := ipam.NewRange(ipam.Range{Subnet: subnet})
			if err != nil {
				return err
			}
			b := blockOf(u, r, now, n.Cooldown)
			b.Free = 0 // it gives none
			blocks = append(blocks, b)
		}
		return nil
	})
	return blocks, err
}

func blockOf(u *ipam.Usage, r ipam.Range, now time.Time, cooldown time.Duration) lease.Block {
	st := u.Stats(ipam.Set{r}, now.UnixNano(), int64(cooldown))
	b := lease.Block{Subnet: r.Subnet, Size: st.Total, Free: st.Free - min(st.Free, uint64(st.Cooling))}
	if st.Used+st.Foreign > 0 {
		return b
	}
	b.IdleSince = 1
	for addr, at := range u.Released {
		if r.Subnet.Contains(addr) {
			b.IdleSince = max(b.IdleSince, at)
		}
	}
	return b
}

// Serve implements leasing.Addresses. The blocks to be dropped are out of
// reach for every ADD first; whether one is in use is then looked up in a
// transaction, so that no ADD is in between.
func (s *addresses) Serve(ctx context.Context, leases []cluster.Lease) error {
	a := (*Agent)(s)
	a.changing.Lock()
	defer a.changing.Unlock()
	dropped := a.inputs.blocks()
	dropped = slices.DeleteFunc(dropped, func(subnet netip.Prefix) bool {
		return slices.ContainsFunc(leases, func(l cluster.Lease) bool { return l.Subnet == subnet })
	})
	a.inputs.restored, a.inputs.served = nil, slices.Clone(leases)
	if err := a.update(ctx); err != nil {
		return err
	}
	used, err := a.inUse(ctx, dropped)
	if err != nil {
		return err
	}
	a.inputs.draining = used
	if len(used) == 0 {
		return nil
	}
	// Its pods need the node as before, also one that has just started.
	if err := a.update(ctx); err != nil {
		return err
	}
	var names []string
	for _, subnet := range used {
		names = append(names, subnet.String())
	}
	return fmt.Errorf("drop %s: %w", strings.Join(names, ", "), leasing.ErrInUse)
}

// blocks returns every block that addresses were given from.
func (in inputs) blocks() []netip.Prefix {
	blocks := slices.Clone(in.draining)
	for _, l := range in.served {
		blocks = append(blocks, l.Subnet)
	}
	if in.restored != nil {
		blocks = append(blocks, in.restored.Subnets()...)
	}
	slices.SortFunc(blocks, netip.Prefix.Compare)
	return slices.Compact(blocks)
}

// inUse returns those of the blocks that a pod has an address of.
func (a *Agent) inUse(ctx context.Context, blocks []netip.Prefix) (used []netip.Prefix, err error) {
	if len(blocks) == 0 {
		return nil, nil
	}
	err = a.store.View(ctx, func(f *facts.Facts) error {
		for addr := range f.Usage(facts.Veth, "").Used {
			blocks = slices.DeleteFunc(blocks, func(b netip.Prefix) bool {
				if b.Contains(addr) {
					used = append(used, b)
					return true
				}
				return false
			})
		}
		return nil
	})
	slices.SortFunc(used, netip.Prefix.Compare)
	return used, err
}

// ready reports why no pod can be attached now, for want of leases.
func (a *Agent) ready(n *engine.Network) *cni.Error {
	if a.cluster == nil {
		return nil
	}
	missing := a.missing(n)
	if missing == "" {
		return nil
	}
	why := a.cluster.keeper.Status().Waiting
	a.cluster.objects.View(func(s *registry.State) {
		if s.Err != nil {
			why = []string{"the registry is out of reach: " + s.Err.Error()}
		}
	})
	if len(why) == 0 {
		why = []string{"see weft status"}
	}
	return cni.Errorf(cni.CodeTryAgain, "node %s has no %s subnet yet: %s", a.cluster.node, missing, strings.Join(why, "; "))
}

// missing names the family that the node should have a block of and has not.
// A pod that should have two addresses must not start with one.
func (a *Agent) missing(n *engine.Network) string {
	var want, have [2]bool
	a.cluster.objects.View(func(s *registry.State) {
		node, known := s.Nodes[a.cluster.node]
		if !known {
			return
		}
		for _, p := range node.PodCIDRs {
			want[familyIndex(p.Addr())] = true
		}
		if len(node.PodCIDRs) > 0 {
			return
		}
		for _, p := range s.Pools {
			if p.Selector.Matches(node.Labels) {
				for _, r := range p.Ranges {
					want[familyIndex(r.CIDR.Addr())] = true
				}
			}
		}
	})
	for _, p := range n.Pool.Subnets() {
		have[familyIndex(p.Addr())] = true
	}
	switch {
	case have == [2]bool{}:
		return "pod"
	case want[0] && !have[0]:
		return "IPv4"
	case want[1] && !have[1]:
		return "IPv6"
	}
	return ""
}

func familyIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
