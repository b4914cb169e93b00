// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/kernel"
)

// TableOf returns the name of the nft table that masquerades for a network; ""
// stands for the network of the agent.
func TableOf(network string) string {
	if network == "" {
		return "weft"
	}
	return "weft." + network
}

// Node returns the node's objects for one network: the gateways that the host
// answers for, and the table that masquerades what comes from the subnets and
// leaves them.
func Node(network string, masquerade bool, subnets []netip.Prefix, addrs []attach.Address) kernel.Node {
	n := kernel.Node{Pools: subnets}
	if masquerade {
		n.Table, n.Sources = TableOf(network), subnets
	}
	for _, a := range addrs {
		n.IPv4 = n.IPv4 || a.Addr.Is4()
		n.IPv6 = n.IPv6 || a.Addr.Is6()
		if a.Gateway.IsValid() && !a.Gateway.IsLinkLocalUnicast() && !slices.Contains(n.Gateways, a.Gateway) {
			n.Gateways = append(n.Gateways, a.Gateway)
		}
	}
	return n
}

// AgentNode returns the node's objects for the agent's network: those of its
// ranges, and of every subnet and gateway that a living attachment has from
// others.
func AgentNode(f *facts.Facts, n Network) (kernel.Node, error) {
	var addrs []attach.Address
	for _, set := range n.Pool.Sets {
		for _, r := range set {
			addrs = append(addrs, attach.Address{Addr: r.First, Subnet: r.Subnet, Gateway: r.Gateway})
		}
	}
	outside, err := Outside(f, n.Pool)
	if err != nil {
		return kernel.Node{}, err
	}
	subnets := n.Pool.Subnets()
	for _, a := range outside {
		if a.Subnet.IsValid() {
			subnets = append(subnets, a.Subnet)
			addrs = append(addrs, a)
		}
	}
	node := Node("", n.Masquerade, subnets, addrs)
	node.Pools = slices.Concat(node.Pools, n.Direct)
	slices.SortFunc(node.Pools, netip.Prefix.Compare)
	node.Pools = slices.Compact(node.Pools)
	node.Sources = slices.DeleteFunc(slices.Clone(node.Sources), func(s netip.Prefix) bool { return covered(s, n.Plain) })
	return node, nil
}

func covered(p netip.Prefix, by []netip.Prefix) bool {
	return slices.ContainsFunc(by, func(b netip.Prefix) bool { return b.Overlaps(p) && b.Bits() <= p.Bits() })
}

// Outside returns addresses of living attachments that are in no subnet of the
// pool, one for each of their subnets, ascending. An adopted attachment's
// address has no subnet, and is its own.
func Outside(f *facts.Facts, pool ipam.Pool) ([]attach.Address, error) {
	subnets := pool.Subnets()
	inside := func(a netip.Addr) bool {
		return slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Contains(a) })
	}
	var outside []attach.Address
	for rec := range f.Each {
		if rec.Kind != facts.Veth || !slices.ContainsFunc(rec.Addresses, func(a netip.Addr) bool { return !inside(a) }) {
			continue
		}
		d, err := rec.Detail()
		if err != nil {
			return nil, err
		}
		for _, a := range d.Addresses {
			known := func(o attach.Address) bool { return o.Subnet == a.Subnet && (a.Subnet.IsValid() || o.Addr == a.Addr) }
			if !inside(a.Addr) && !slices.ContainsFunc(outside, known) {
				outside = append(outside, a)
			}
		}
	}
	slices.SortFunc(outside, func(a, b attach.Address) int {
		return cmp.Or(a.Subnet.Compare(b.Subnet), a.Addr.Compare(b.Addr))
	})
	return outside, nil
}

// ensureNode makes the node ready for an attachment, in a process that has no
// agent to keep it so.
func (e *Engine) ensureNode(ctx context.Context, r AddRequest, spec attach.Spec) error {
	if r.Delegate == nil {
		return e.Kernel.EnsureNode(Node(r.Key.Network, r.Network.Masquerade, r.Network.Pool.Subnets(), spec.Addresses))
	}
	// The delegate does not tell its subnets in advance: those of all
	// attachments that live are what is masqueraded. Inside the transaction,
	// or of two ADDs the one that knows fewer might write last.
	return e.Store.View(ctx, func(f *facts.Facts) error {
		subnets, err := grantedSubnets(f, r.Key.Network)
		if err != nil {
			return err
		}
		return e.Kernel.EnsureNode(Node(r.Key.Network, r.Network.Masquerade, subnets, spec.Addresses))
	})
}

// grantedSubnets returns the distinct subnets of a network's attachments, in
// order.
func grantedSubnets(f *facts.Facts, network string) ([]netip.Prefix, error) {
	var subnets []netip.Prefix
	for rec := range f.Each {
		if rec.Key.Network != network || rec.Kind != facts.Veth {
			continue
		}
		d, err := rec.Detail()
		if err != nil {
			return nil, err
		}
		for _, a := range d.Addresses {
			if !slices.Contains(subnets, a.Subnet) {
				subnets = append(subnets, a.Subnet)
			}
		}
	}
	slices.SortFunc(subnets, netip.Prefix.Compare)
	return subnets, nil
}

// nodeOf returns the node's objects that a recorded attachment needs.
func nodeOf(f *facts.Facts, rec facts.Record, d facts.Detail) (kernel.Node, error) {
	subnets := d.Pool
	if d.Delegate != nil {
		var err error
		if subnets, err = grantedSubnets(f, rec.Key.Network); err != nil {
			return kernel.Node{}, err
		}
	}
	return Node(rec.Key.Network, d.Masquerade, subnets, d.Addresses), nil
}

// removeNodeAfter removes what only this attachment still needed of the node's
// objects. It does so inside a transaction: an ADD that begins meanwhile cannot
// record its intent before, and makes them again after.
func (e *Engine) removeNodeAfter(ctx context.Context, rec facts.Record) error {
	return e.Store.View(ctx, func(f *facts.Facts) error {
		node, last, err := lastNodeOf(f, rec)
		if err != nil || !last {
			return err
		}
		return e.Kernel.RemoveNode(node)
	})
}

// lastNodeOf returns the node's objects that nobody needs without this
// attachment; last is false if its network has others. Those on their way out
// do not count: of the last two, removed at the same time, each would leave the
// objects to the other.
func lastNodeOf(f *facts.Facts, rec facts.Record) (node kernel.Node, last bool, err error) {
	for other := range f.Each {
		if other.Key.Network == rec.Key.Network && other.Key != rec.Key && other.Kind == facts.Veth && other.Phase != facts.Releasing {
			return node, false, nil
		}
	}
	d, err := rec.Detail()
	if err != nil {
		return node, false, err
	}
	d.Masquerade = true // others of the network may have had it, and this one not
	if node, err = nodeOf(f, rec, d); err != nil {
		return node, false, err
	}
	for other := range f.Each {
		if other.Key == rec.Key || other.Phase == facts.Releasing {
			continue
		}
		od, err := other.Detail()
		if err != nil {
			return node, false, err
		}
		for _, a := range od.Addresses {
			node.Gateways = slices.DeleteFunc(node.Gateways, func(gw netip.Addr) bool { return gw == a.Gateway })
		}
	}
	return node, true, nil
}
