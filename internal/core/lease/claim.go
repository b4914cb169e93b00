// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft.dev/weft/internal/core/cluster"
)

// reclaim claims blocks whose lease is gone, though the node gives addresses
// from them or pods have some.
func (d *decider) reclaim() {
	lost := slices.Clone(d.in.Blocks)
	slices.SortFunc(lost, func(a, b Block) int { return a.Subnet.Compare(b.Subnet) })
	lost = slices.CompactFunc(lost, func(a, b Block) bool { return a.Subnet == b.Subnet })
	for _, b := range lost {
		fits, used := d.fits(b.Subnet), b.IdleSince == 0
		if d.covered(b.Subnet) || !fits && !used {
			continue
		}
		if slices.Contains(d.in.Node.PodCIDRs, b.Subnet) {
			continue // takeAssigned does it
		}
		holder, held := d.holder(b.Subnet)
		switch {
		case held && used:
			d.wait("block %s was lost to %s; %s", b.Subnet, holder.Node, stillUsed(b))
		case used && d.sizeOf(b.Subnet) == 0:
			d.wait("block %s lost its lease and is reserved now; %s", b.Subnet, stillUsed(b))
		case d.obstacle(b.Subnet) != "": // and used
			d.wait("block %s lost its lease and %s; %s", b.Subnet, d.obstacle(b.Subnet), stillUsed(b))
		case used && d.isBusy(b.Subnet):
			d.wait("block %s lost its lease, and somebody else claimed it; %s", b.Subnet, stillUsed(b))
		case held, d.isBusy(b.Subnet):
		default:
			d.claim(b.Subnet)
			if fits {
				d.regained = append(d.regained, b)
			}
		}
	}
}

// covered reports whether an own lease, possibly of another size, is for all
// of the subnet.
func (d *decider) covered(subnet netip.Prefix) bool {
	return slices.ContainsFunc(d.own, func(l cluster.Lease) bool { return contains(l.Subnet, subnet) })
}

func stillUsed(b Block) string {
	if n := b.Size - min(b.Free, b.Size); n > 0 {
		return fmt.Sprintf("%d of its addresses are in use, kept for pods or cooling down", n)
	}
	return "pods have addresses of it"
}

// takeAssigned claims the node's PodCIDR of the family.
func (d *decider) takeAssigned(f family) {
	for _, subnet := range d.in.Node.PodCIDRs {
		if familyOf(subnet) != f {
			continue
		}
		holder, held := d.holder(subnet)
		switch {
		case d.obstacle(subnet) != "":
			d.wait("PodCIDR %s of Node %s %s; the cluster must assign another one", subnet, d.in.Name, d.obstacle(subnet))
		case held && holder.Node == d.in.Name && holder.Subnet == subnet:
			if reason := d.in.Rejected[holder.Name()]; reason != "" {
				d.wait("PodCIDR %s of Node %s cannot be used: %s", subnet, d.in.Name, reason)
			}
		case held:
			d.wait("PodCIDR %s of Node %s overlaps SubnetLease %s of %s", subnet, d.in.Name, holder.Name(), holder.Node)
		case d.isBusy(subnet):
			d.wait("PodCIDR %s of Node %s was claimed by somebody else", subnet, d.in.Name)
		default:
			d.claim(subnet)
		}
	}
}

// takeFromPools claims blocks until the family has enough free addresses.
func (d *decider) takeFromPools(f family, h *held) {
	if len(d.in.Node.PodCIDRs) > 0 || !d.needs(f) {
		return
	}
	have := slices.Clone(h.good)
	for _, b := range d.regained {
		if familyOf(b.Subnet) == f && !d.onRequest(b.Subnet) {
			have = append(have, holding{block: b})
		}
	}
	d.take(f, h, d.normal, have, "")
}

// takeDemanded claims blocks until the pool has enough free addresses in the
// family, if it has the family.
func (d *decider) takeDemanded(f family, p cluster.Pool, h *held) {
	if _, ok := rangeOf(p, f); !ok {
		return
	}
	of := func(subnet netip.Prefix) bool {
		q, ok := poolOf(d.pools, subnet)
		return ok && q.Name == p.Name && familyOf(subnet) == f
	}
	var have []holding
	for _, one := range slices.Concat(h.good, h.onRequest) {
		if of(one.lease.Subnet) {
			have = append(have, one)
		}
	}
	for _, l := range d.out.Claim {
		if of(l.Subnet) {
			have = append(have, holding{block: d.blockOf(l.Subnet)})
		}
	}
	d.take(f, h, []cluster.Pool{p}, have, " of IPPool "+p.Name+", which a pod asks for")
}

// take claims blocks of the pools until there are enough free addresses. what
// names the pools in texts.
func (d *decider) take(f family, h *held, pools []cluster.Pool, have []holding, what string) {
	for len(have) == 0 || freeOf(have) < lowOf(have) {
		lack := fmt.Sprintf("Node %s has no %s block%s", d.in.Name, f, what)
		if len(have) > 0 {
			lack = fmt.Sprintf("Node %s has %d free %s addresses left%s", d.in.Name, freeOf(have), f, what)
		}
		if !d.in.Reachable {
			d.wait("%s, and the registry takes no claims now", lack)
			return
		}
		subnet, reasons := d.choose(f, pools, h)
		if !subnet.IsValid() {
			d.wait("%s, and none is free: %s", lack, strings.Join(reasons, "; "))
			return
		}
		d.claim(subnet)
		have = append(have, holding{block: d.blockOf(subnet)})
	}
}

// demanded returns the pools in demand that the node may lease from.
func (d *decider) demanded() (pools []cluster.Pool) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(d.in.Demand))) {
		i := slices.IndexFunc(d.in.Pools, func(p cluster.Pool) bool { return p.Name == name })
		switch {
		case i < 0:
			d.wait("a pod asks for IPPool %s, and there is none of that name in use", name)
		case len(d.in.Node.PodCIDRs) > 0:
			d.wait("a pod asks for IPPool %s, and Node %s has its PodCIDRs and leases from no pool", name, d.in.Name)
		case !d.in.Pools[i].Selector.Matches(d.in.Node.Labels):
			d.wait("a pod asks for IPPool %s, which does not select Node %s", name, d.in.Name)
		default:
			pools = append(pools, d.in.Pools[i])
		}
	}
	return pools
}

func (d *decider) whyNoPool() string {
	switch {
	case len(d.in.Pools) == 0:
		return "there is no IPPool"
	case len(d.pools) > 0:
		return fmt.Sprintf("each IPPool that selects Node %s is only for pods that ask for it", d.in.Name)
	}
	return fmt.Sprintf("no IPPool selects Node %s", d.in.Name)
}
