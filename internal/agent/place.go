// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/kernel"
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
			if n.Kind == fabric.Underlay || n.Kind == "" {
				a.moved.Store(true)
				a.wake()
			}
			a.fabric.Noticed(n.Kind, n.Key, n.Value, n.Gone)
		})
		if ctx.Err() == nil {
			a.log.Warn("kernel notifications ended, will retry", "error", err)
			pause(ctx, time.Second)
		}
	}
}

// readUnderlay looks up where this node is, if that may have changed. While
// nothing is found the node keeps the place that it had: an uplink that is down
// for a moment must not cost any route.
func (a *Agent) readUnderlay(now time.Time) {
	in := &a.inputs
	wanted, ask := a.addressesToFind()
	if !ask {
		return
	}
	due := now.Sub(a.looked.underlay) >= underlayInterval || !slices.Equal(wanted, a.looked.addresses)
	if a.moved.Swap(false) || due {
		a.looked.underlay, a.looked.addresses = now, wanted
		found, err := a.kernel.Underlay(wanted, in.place())
		if a.cluster != nil { // a node of its own needs no underlay
			a.lost.note(a.log, "no place in the underlay", err)
		}
		if err == nil && !slices.Equal(found, in.underlay) {
			a.log.Info("place in the underlay changed", "from", in.underlay, "to", found)
			in.underlay = found
		}
	}
	if self := in.self(); a.cluster != nil && len(in.underlay) > 0 && !reflect.DeepEqual(self, a.self) {
		a.self = self
		a.fabric.SetSelf(self)
	}
}

// addressesToFind returns the addresses of this node: as configured, or as the
// Node object says, or none, which means those of the default route. ask is
// false while that is not known: a node that takes the wrong place at its start
// would have all its peers follow it there and back.
func (a *Agent) addressesToFind() (wanted []netip.Addr, ask bool) {
	in := &a.inputs
	if configured := in.config.Network.NodeAddresses; len(configured) > 0 || a.cluster == nil {
		return configured, true
	}
	if in.node == nil {
		return nil, false
	}
	for _, addr := range in.node.Addresses {
		if !slices.ContainsFunc(wanted, func(b netip.Addr) bool { return b.Is4() == addr.Is4() }) {
			wanted = append(wanted, addr)
		}
	}
	return wanted, true
}

// place is the place that the node had so far, or, after a start, the one that
// its leases tell of.
func (in inputs) place() []topology.Underlay {
	if len(in.underlay) > 0 {
		return in.underlay
	}
	var had []topology.Underlay
	for _, addr := range in.known {
		had = append(had, topology.Underlay{Addr: netip.PrefixFrom(addr, addr.BitLen())})
	}
	return had
}

// self is this node as the topology sees it.
func (in inputs) self() topology.Self {
	b := in.config.Network.Backend
	checksum := b.ChecksumOffload == "on"
	if b.ChecksumOffload == "auto" {
		checksum, _ = kernel.ProbeChecksumOffload()
	}
	return topology.Self{
		Node: in.config.NodeName, Underlay: in.underlay, Backend: b.Type,
		VNI: uint32(b.VNI), Port: uint16(b.Port), Checksum: checksum,
	}
}
