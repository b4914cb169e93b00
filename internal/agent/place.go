// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/registry"
)

// agentTable is the nftables table of the agent's network; those of thin
// plugins have other names.
const agentTable = "weft"

func (a *Agent) drivers() fabric.Drivers {
	k := a.kernel
	return fabric.Drivers{
		Sysctls:    k.Sysctls(kernel.ForwardingIPv4, kernel.ForwardingIPv6),
		Links:      k.VXLANLinks(a.inputs.config.StateDir),
		Addresses:  k.FabricAddresses(),
		Neighbours: k.FabricNeighbours(),
		FDB:        k.FDB(),
		Routes:     k.FabricRoutes(),
		NAT:        k.NAT(agentTable),
	}
}

// nodeObjects says what the node needs in the words of the reconciler.
func nodeObjects(n kernel.Node) fabric.Node {
	const origin = "AgentConfiguration"
	objects := fabric.Node{
		Sysctls: map[topology.SysctlKey]topology.Wanted[topology.Sysctl]{},
		Routes:  map[topology.RouteKey]topology.Wanted[topology.Route]{},
		NAT:     map[topology.NATKey]topology.Wanted[topology.NAT]{},
	}
	forward := topology.Wanted[topology.Sysctl]{Value: "1", Origin: origin}
	if n.IPv4 {
		objects.Sysctls[kernel.ForwardingIPv4] = forward
	}
	if n.IPv6 {
		objects.Sysctls[kernel.ForwardingIPv6] = forward
	}
	for _, gw := range n.Gateways {
		if gw.Is4() || !gw.IsLinkLocalUnicast() {
			key := topology.RouteKey{Dst: netip.PrefixFrom(gw, gw.BitLen()), Local: true}
			objects.Routes[key] = topology.Wanted[topology.Route]{Origin: "gateway of this node's pods"}
		}
	}
	if n.Table != "" && len(n.Sources) > 0 {
		objects.NAT[topology.NATKey(n.Table)] = topology.Wanted[topology.NAT]{Value: kernel.NATOf(n), Origin: origin}
	}
	return objects
}

// underlayInterval is how often the underlay is looked at although nothing
// was reported.
const underlayInterval = 30 * time.Second

// followKernel passes on what the kernel reports.
func (a *Agent) followKernel(ctx context.Context) {
	for ctx.Err() == nil {
		err := a.kernel.Monitor(ctx, func(n kernel.Notice) {
			if n.Kind == "underlay" || n.Kind == "" {
				a.move()
			}
			a.fabric.Noticed(n.Kind, n.Key, n.Value, n.Gone)
		})
		if ctx.Err() == nil {
			a.log.Warn("kernel notifications ended, will retry", "error", err)
			pause(ctx, time.Second)
			a.fabric.Resync("")
		}
	}
}

// move has the agent look at its place again.
func (a *Agent) move() {
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

// followUnderlay follows changes of this node's place.
func (a *Agent) followUnderlay(ctx context.Context) {
	tick := time.NewTicker(underlayInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.moved:
		case <-tick.C:
		}
		if !a.readUnderlay() {
			continue
		}
		if err := a.changeNetwork(ctx, func(*inputs) {}); err != nil {
			a.log.Warn("network not changed, will retry", "error", err)
			a.check(err)
		}
		if a.cluster != nil {
			a.cluster.kick()
		}
	}
}

// readUnderlay looks up where this node is, and reports whether that has
// changed. While nothing is found the node keeps the place that it had: an
// uplink that is down for a moment must not cost any route.
func (a *Agent) readUnderlay() (changed bool) {
	a.changing.Lock()
	defer a.changing.Unlock()
	found, err := a.kernel.Underlay(a.nodeAddresses())
	if a.cluster == nil {
		err = nil // a node of its own needs no underlay
	} else {
		a.lost.note(a.log, err)
	}
	if err == nil && !slices.Equal(found, a.inputs.underlay) {
		a.log.Info("place in the underlay changed", "from", a.inputs.underlay, "to", found)
		a.inputs.underlay, changed = found, true
	}
	if a.cluster != nil && len(a.inputs.underlay) > 0 {
		a.setSelf()
	}
	return changed
}

// nodeAddresses returns the addresses to look for: as configured, or as the
// Node object says, or none, which means those of the default route.
func (a *Agent) nodeAddresses() []netip.Addr {
	if configured := a.inputs.config.Network.NodeAddresses; len(configured) > 0 || a.cluster == nil {
		return configured
	}
	var addrs []netip.Addr
	a.cluster.objects.View(func(s *registry.State) {
		for _, addr := range s.Nodes[a.cluster.node].Addresses {
			if !slices.ContainsFunc(addrs, func(b netip.Addr) bool { return b.Is4() == addr.Is4() }) {
				addrs = append(addrs, addr)
			}
		}
	})
	return addrs
}

// setSelf tells the fabric; it is called with changing held.
func (a *Agent) setSelf() {
	b := a.inputs.config.Network.Backend
	checksum := b.ChecksumOffload == "on"
	if b.ChecksumOffload == "auto" {
		checksum, _ = kernel.ProbeChecksumOffload()
	}
	a.fabric.SetSelf(topology.Self{
		Node: a.cluster.node, Underlay: a.inputs.underlay, Backend: b.Type,
		VNI: uint32(b.VNI), Port: uint16(b.Port), Checksum: checksum,
	})
}
