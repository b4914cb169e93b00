// SPDX-License-Identifier: Apache-2.0

package wish

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/ipam"
)

// target is an address that the pod must get.
type target struct {
	addr   netip.Addr
	by     string // what says so: an annotation, or the claim
	kept   bool   // a claim keeps it for this pod
	advice string // what else the pod's owner can do
}

func (t target) refuse(reason, format string, args ...any) error {
	return refuse(reason, "%s: %s %s; %s", t.by, t.addr, fmt.Sprintf(format, args...), t.advice)
}

func (t target) subnet() netip.Prefix { return netip.PrefixFrom(t.addr, t.addr.BitLen()) }

// place is where an address is.
type place struct {
	pool     cluster.Pool
	inPool   bool
	reserved bool          // the pool gives it to nobody unasked
	block    cluster.Lease // around it
	served   bool          // by this node's IPAM
	leased   bool          // by any node
}

func (r *resolver) placeOf(a netip.Addr) (p place) {
	for _, pool := range r.v.Pools {
		if slices.ContainsFunc(pool.Ranges, func(in cluster.PoolRange) bool { return in.CIDR.Contains(a) }) {
			p.pool, p.inPool = pool, true
			p.reserved = slices.ContainsFunc(pool.Reserved, func(q netip.Prefix) bool { return q.Contains(a) })
		}
	}
	p.block, p.served, p.leased = r.blockAround(a)
	return p
}

// place decides how the pod gets the address.
func (r *resolver) place(t target) error {
	p := r.placeOf(t.addr)
	if err := r.checkPlace(t, p); err != nil {
		return err
	}
	if err := r.checkHolders(t); err != nil {
		return err
	}
	existing, exists := r.v.Leases[cluster.LeaseName(t.subnet())]
	switch {
	case p.served && !p.reserved:
		r.own = append(r.own, p.block.Subnet)
		if exists {
			r.out.Drop = append(r.out.Drop, existing)
		}
		return nil
	case p.inPool && !p.pool.Selector.Matches(r.v.Labels):
		return t.refuse(PoolNotForNode, "is in IPPool %s, which does not select node %s", p.pool.Name, r.v.Node)
	case exists && existing.Node == r.v.Node:
		return nil
	case exists:
		r.out.TakeOver = append(r.out.TakeOver, existing)
		return nil
	case p.reserved, t.kept:
		r.out.Lease = append(r.out.Lease, cluster.Lease{Subnet: t.subnet(), Pool: p.pool.Name, Pod: r.pod})
		return nil
	case p.leased && p.block.Node != r.v.Node:
		return t.refuse(AddressOnOtherNode, "is in block %s of node %s, and not reserved; let IPPool %s reserve it while no pod has it, or have addresses kept by %s",
			p.block.Subnet, p.block.Node, orNone(p.pool.Name), Sticky)
	case p.leased:
		return t.refuse(AddressNotReserved, "is in block %s, which node %s gives no addresses from, and not reserved; let IPPool %s reserve it while no pod has it",
			p.block.Subnet, r.v.Node, orNone(p.pool.Name))
	}
	return t.refuse(AddressNotReserved, "is in no node's block, and not reserved; let IPPool %s reserve it while no pod has it", p.pool.Name)
}

// orNone is for subnets that the cluster assigns, which need no pool.
func orNone(pool string) string {
	if pool == "" {
		return "(there is none around it)"
	}
	return pool
}

// checkPlace refuses addresses that no pod here can have.
func (r *resolver) checkPlace(t target, p place) error {
	assigned := p.leased && p.block.Pool == ""
	switch {
	case !p.inPool && !p.served && !assigned:
		return t.refuse(AddressOutsidePools, "is in no IPPool in use")
	case r.w.Pool != "" && p.pool.Name != r.w.Pool:
		return t.refuse(AddressOutsidePools, "is not in IPPool %s, which %s asks for", r.w.Pool, Pool)
	}
	if block := p.blockSubnet(t.addr); !usable(block, t.addr) {
		return t.refuse(AddressUnusable, "is the network, gateway or broadcast address of block %s", block)
	}
	return nil
}

// blockSubnet returns the block that the address is in, or would be in if it
// was leased.
func (p place) blockSubnet(a netip.Addr) netip.Prefix {
	if p.leased {
		return p.block.Subnet
	}
	for _, in := range p.pool.Ranges {
		if in.CIDR.Contains(a) {
			return netip.PrefixFrom(a, in.BlockBits).Masked()
		}
	}
	return netip.Prefix{}
}

// usable reports whether a pod can have the address of the block.
func usable(block netip.Prefix, a netip.Addr) bool {
	in, err := ipam.NewRange(ipam.Range{Subnet: block})
	return err == nil && a != in.Gateway && in.First.Compare(a) <= 0 && a.Compare(in.Last) <= 0
}

// checkHolders refuses an address that a claim or a lease gives to another pod.
func (r *resolver) checkHolders(t target) error {
	for _, key := range slices.Sorted(maps.Keys(r.v.Claims)) {
		if c := r.v.Claims[key]; key != r.pod && slices.Contains(c.Addresses, t.addr) {
			return t.refuse(AddressInUse, "is kept by AddressClaim %s for the pod of that name", key)
		}
	}
	l, exists := r.v.Leases[cluster.LeaseName(t.subnet())]
	switch {
	case !exists || l.Pod == r.pod:
		return nil
	case l.Pod == "":
		return t.refuse(AddressInUse, "is leased as a block by node %s (SubnetLease %s)", l.Node, l.Name())
	}
	return t.refuse(AddressInUse, "is the address of pod %s on node %s (SubnetLease %s)", l.Pod, l.Node, l.Name())
}
