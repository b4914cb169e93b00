// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/kernel"
)

// inputs is what the node's network follows from.
type inputs struct {
	config   v1alpha1.AgentConfiguration
	underlay []topology.Underlay
	// restored are the ranges that the journal knows; they serve until the
	// first decision about leases, so that pods start while the registry is
	// out of reach.
	restored *ipam.Pool
	served   []cluster.Lease
	draining []netip.Prefix // blocks that give no address any more, but pods have some
	pools    []cluster.Pool // accepted ones
	outside  []netip.Prefix // subnets of other nodes' leases that are in no pool
}

func (a *Agent) config() v1alpha1.AgentConfiguration {
	a.changing.Lock()
	defer a.changing.Unlock()
	return a.inputs.config
}

// changeNetwork changes what the network follows from, and everything that
// follows: what ADD gives, what the node needs, what the journal says to the
// shim that serves calls while the agent is down, and the MTU of the pods that
// there are.
func (a *Agent) changeNetwork(ctx context.Context, change func(*inputs)) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	change(&a.inputs)
	return a.update(ctx)
}

// update is called with changing held.
func (a *Agent) update(ctx context.Context) error {
	network, err := a.inputs.network()
	if err != nil {
		return err
	}
	if network.MTU == 0 {
		if network.MTU, err = a.kernel.UplinkMTU(); err != nil {
			return err
		}
	}
	network.Avoid = func(addr netip.Addr) bool {
		_, _, granted := a.network.Load().Pool.Find(addr)
		return !granted
	}
	var node kernel.Node
	err = a.store.View(ctx, func(f *facts.Facts) (err error) {
		node, err = a.inputs.node(f, network)
		return err
	})
	if err != nil {
		return err
	}
	a.node.Store(&node)
	a.fabric.SetNode(nodeObjects(node))
	a.awaitNode(ctx)
	before, err := a.publish(ctx, network)
	if err != nil {
		return err
	}
	return a.resize(ctx, before.MTU, network.MTU)
}

// nodePatience bounds how long pods wait for the node's own objects.
const nodePatience = 2 * time.Second

// awaitNode waits until the node masquerades and forwards what it shall: a flow
// that begins before would keep the pod's address for as long as it lasts.
func (a *Agent) awaitNode(ctx context.Context) {
	if !a.started {
		return // nobody carries it out yet, and nobody is served
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	if err := a.fabric.Wait(ctx, fabric.Sysctls, fabric.NAT); err != nil {
		a.log.Warn("the node's own objects are late, pods start without them", "error", err)
	}
}

// publish makes the network the one that ADD uses and that the journal has.
func (a *Agent) publish(ctx context.Context, network engine.Network) (before engine.Network, err error) {
	err = a.store.Update(ctx, func(f *facts.Facts) (entries []string, err error) {
		if before, err = engine.RecordedNetwork(f); err != nil {
			// Another release may have written it otherwise; no reason to stop.
			a.log.Warn("the network in the journal is unreadable; pods keep the MTU they have", "error", err)
		}
		a.network.Store(&network)
		entry, err := recordOf(f, network)
		if entry == "" {
			return nil, err
		}
		return []string{entry}, err
	})
	if err == nil && before.Pool.String() != network.Pool.String() {
		a.log.Info("network changed", "from", before.Pool.Subnets(), "to", network.Pool.Subnets())
	}
	return before, err
}

// recordOf returns the journal's entry for a network; "" if the journal has it.
func recordOf(f *facts.Facts, network engine.Network) (string, error) {
	raw, err := json.Marshal(network)
	if err != nil || f.Config() == string(raw) {
		return "", err
	}
	return facts.EncodeConfig(time.Now().UnixNano(), string(raw))
}

// resize gives the pods that have the old MTU the new one.
func (a *Agent) resize(ctx context.Context, from, to int) error {
	if from == 0 || from == to {
		return nil
	}
	n, err := a.engine.Resize(ctx, from, to)
	a.log.Info("MTU changed", "from", from, "to", to, "pods", n, "error", err)
	return err
}

// network returns the network that ADD attaches pods to.
func (in inputs) network() (engine.Network, error) {
	c := in.config.Network
	n := engine.Network{
		Routes: c.Routes, MTU: c.MTU, Masquerade: *c.Masquerade, Cooldown: time.Duration(*c.Cooldown),
	}
	if n.MTU == 0 {
		n.MTU = in.podMTU()
	}
	var err error
	switch {
	case in.config.Cluster == nil:
		n.Pool, err = c.Pool()
	case in.restored != nil:
		n.Pool = *in.restored
	default:
		n.Pool, err = in.leasedPool()
	}
	if err != nil {
		return n, fmt.Errorf("ranges of this node: %w", err)
	}
	if n.Routes == nil {
		n.Routes = v1alpha1.DefaultRoutes(n.Pool)
	}
	return n, nil
}

// podMTU is the underlay's, less what VXLAN takes if packets may go that way;
// 0 if there is no underlay. VXLAN prefers IPv4. A peer that has only IPv6 is
// reached with 20 bytes less, which its device tells the pods by ICMP.
func (in inputs) podMTU() int {
	mtu := 0
	for _, u := range in.underlay {
		of := u.MTU
		if in.config.Cluster != nil && in.config.Network.Backend.Type != topology.Native {
			of -= overhead(in.underlay[0])
		}
		if mtu == 0 || of < mtu {
			mtu = of
		}
	}
	return mtu
}

func overhead(u topology.Underlay) int {
	if u.Addr.Addr().Is4() {
		return topology.Overhead4
	}
	return topology.Overhead6
}

// leasedPool makes a set of each family of the leases, without the addresses
// that their pools reserve.
func (in inputs) leasedPool() (ipam.Pool, error) {
	var families [2]ipam.Set
	for _, l := range in.served {
		r, err := ipam.NewRange(ipam.Range{Subnet: l.Subnet, Exclude: in.reservedIn(l)})
		if err != nil {
			return ipam.Pool{}, err
		}
		i := 0
		if l.Subnet.Addr().Is6() {
			i = 1
		}
		families[i] = append(families[i], r)
	}
	var sets []ipam.Set
	for _, set := range families {
		if len(set) > 0 {
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 {
		return ipam.Pool{}, nil
	}
	return ipam.NewPool(sets)
}

func (in inputs) reservedIn(l cluster.Lease) []netip.Prefix {
	var reserved []netip.Prefix
	for _, p := range in.pools {
		if p.Name == l.Pool {
			for _, r := range p.Reserved {
				if r.Overlaps(l.Subnet) && r.Bits() >= l.Subnet.Bits() {
					reserved = append(reserved, r)
				}
			}
		}
	}
	return reserved
}

// node returns what the node itself needs. What it masquerades comes from its
// own subnets, but for those whose pool says no, and leaves all pools.
func (in inputs) node(f *facts.Facts, network engine.Network) (kernel.Node, error) {
	node, err := engine.AgentNode(f, network)
	if err != nil {
		return node, err
	}
	node.Pools = slices.Concat(node.Pools, in.config.Network.MasqueradeExclude, in.outside)
	for _, p := range in.pools {
		for _, r := range p.Ranges {
			node.Pools = append(node.Pools, r.CIDR)
			if !p.Masquerade {
				node.Sources = slices.DeleteFunc(slices.Clone(node.Sources), func(s netip.Prefix) bool {
					return r.CIDR.Overlaps(s) && r.CIDR.Bits() <= s.Bits()
				})
			}
		}
	}
	slices.SortFunc(node.Pools, netip.Prefix.Compare)
	node.Pools = slices.Compact(node.Pools)
	return node, nil
}
