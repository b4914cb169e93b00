// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
)

// family is an address family.
type family int

const (
	ipv4 family = 4
	ipv6 family = 6
)

var families = []family{ipv4, ipv6}

func (f family) String() string { return map[family]string{ipv4: "IPv4", ipv6: "IPv6"}[f] }

func familyOf(p netip.Prefix) family {
	if p.Addr().Is4() {
		return ipv4
	}
	return ipv6
}

// holding is one of the node's leases with the use of its block.
type holding struct {
	lease cluster.Lease
	block Block
	used  bool // a pod has an address of it
}

// held is what a node holds in one family, each list ascending.
type held struct {
	good      []holding // those of PodCIDRs and of pools that need no request
	onRequest []holding // as good, but only for pods that ask
	outdated  []holding // not what the node would claim today
	rejected  []holding
}

func (d *decider) heldIn(f family) *held {
	h := &held{}
	for _, l := range d.own {
		if familyOf(l.Subnet) != f {
			continue
		}
		one := holding{lease: l, block: d.blockOf(l.Subnet)}
		one.used = slices.ContainsFunc(d.in.Blocks, func(b Block) bool { return b.IdleSince == 0 && b.Subnet.Overlaps(l.Subnet) })
		switch {
		case d.rejection(l) != "":
			h.rejected = append(h.rejected, one)
		case d.fits(l.Subnet) && d.onRequest(l.Subnet):
			h.onRequest = append(h.onRequest, one)
		case d.fits(l.Subnet):
			h.good = append(h.good, one)
		default:
			h.outdated = append(h.outdated, one)
		}
	}
	return h
}

// blockOf returns the use of a subnet; one that IPAM does not know is unused.
func (d *decider) blockOf(subnet netip.Prefix) Block {
	for _, b := range d.in.Blocks {
		if b.Subnet == subnet {
			return b
		}
	}
	size := d.sizeOf(subnet)
	return Block{Subnet: subnet, Size: size, Free: size}
}

// eligible reports whether the subnet is one that the node may claim next.
func (d *decider) eligible(subnet netip.Prefix) bool { return d.fits(subnet) && !d.hasNode(subnet) }

// fits reports whether the subnet is one that the node may have for its pods.
func (d *decider) fits(subnet netip.Prefix) bool {
	if d.obstacle(subnet) != "" {
		return false
	}
	if len(d.in.Node.PodCIDRs) > 0 {
		return slices.Contains(d.in.Node.PodCIDRs, subnet)
	}
	p, ok := poolOf(d.pools, subnet)
	return ok && size(subnet, p.Reserved) > 0
}

// onRequest reports whether the subnet is of a pool for pods that ask for it.
func (d *decider) onRequest(subnet netip.Prefix) bool {
	p, _ := poolOf(d.in.Pools, subnet)
	return p.OnRequest && !slices.Contains(d.in.Node.PodCIDRs, subnet)
}

// needs reports whether the node needs addresses of the family for pods that
// ask for nothing.
func (d *decider) needs(f family) bool {
	for _, p := range d.in.Node.PodCIDRs {
		if familyOf(p) == f {
			return true
		}
	}
	return slices.ContainsFunc(d.normal, func(p cluster.Pool) bool {
		_, ok := rangeOf(p, f)
		return ok
	})
}

const (
	// maxRejected is how many rejected leases of a pool that are not in use, in
	// each family, a node keeps until it stops claiming more: if the reason is not
	// the block, the next one will be rejected as well, and the node would go
	// through the pool.
	maxRejected = 3
	// rejectedFor is how long it keeps each: five minutes, in nanoseconds. What it
	// gives back it may claim anew, for the same fate.
	rejectedFor = int64(5 * 60 * 1_000_000_000)
)

// dropRejected gives back what must not be used: what the node would not claim
// again at once, the rest after a while. That counts from the lease and not from
// when the process began, or restarts would keep it. A PodCIDR that would be
// claimed again stays.
func (d *decider) dropRejected(h *held) {
	for _, one := range h.rejected {
		switch {
		case one.used:
		case slices.Contains(d.in.Node.PodCIDRs, one.lease.Subnet) && d.fits(one.lease.Subnet):
		case !d.eligible(one.lease.Subnet), d.isDue(max(one.block.IdleSince, one.lease.Created) + rejectedFor):
			d.dropUnused(one)
		}
	}
}

func (d *decider) dropUnused(one holding) {
	if d.in.Reachable && !one.used {
		d.out.Release = append(d.out.Release, one.lease)
	}
}

// serveOutdated serves outdated leases where there is nothing better: the
// family is needed and has no good one, or nothing at all is needed, as after
// the deletion of the last pool. Those that were for pods that ask, others, and those in the way of a good one, go
// as soon as they are unused.
func (d *decider) serveOutdated(f family, h *held) {
	nothing := len(d.in.Node.PodCIDRs) == 0 && len(d.normal) == 0
	serve := nothing || d.needs(f) && len(h.good) == 0
	for _, one := range h.outdated {
		switch {
		case !serve, d.onRequest(one.lease.Subnet), !one.used && d.inTheWay(one.lease.Subnet) && d.in.Reachable:
			d.dropUnused(one)
		default:
			d.out.Serve = append(d.out.Serve, one.lease)
		}
	}
}

// inTheWay reports whether a lease of the subnet keeps the node from claiming
// what it should have.
func (d *decider) inTheWay(subnet netip.Prefix) bool {
	return slices.ContainsFunc(d.in.Node.PodCIDRs, subnet.Overlaps) ||
		slices.ContainsFunc(d.pools, func(p cluster.Pool) bool {
			r, ok := rangeOf(p, familyOf(subnet))
			return ok && r.CIDR.Overlaps(subnet)
		})
}

// serveGood serves all good leases but those that are idle and not needed. The
// longest idle goes first.
func (d *decider) serveGood(h *held) {
	stay := slices.Clone(h.good)
	if len(d.in.Node.PodCIDRs) == 0 && d.in.Reachable {
		slices.SortStableFunc(stay, func(a, b holding) int { return cmp.Compare(d.idleSince(a), d.idleSince(b)) })
		for _, one := range slices.Clone(stay) {
			others := slices.DeleteFunc(slices.Clone(stay), func(o holding) bool { return o.lease.Subnet == one.lease.Subnet })
			if len(others) > 0 && !one.used && d.idleLongEnough(one) && freeOf(others)/2 >= lowOf(others) {
				d.out.Release = append(d.out.Release, one.lease)
				stay = others
			}
		}
	}
	for _, one := range stay {
		d.out.Serve = append(d.out.Serve, one.lease)
	}
}

// serveOnRequest serves the blocks for pods that ask until they are idle, the
// last one as well.
func (d *decider) serveOnRequest(h *held) {
	for _, one := range h.onRequest {
		p, _ := poolOf(d.pools, one.lease.Subnet)
		if d.in.Reachable && !one.used && !slices.Contains(d.in.Demand, p.Name) && d.idleLongEnough(one) {
			d.out.Release = append(d.out.Release, one.lease)
			continue
		}
		d.out.Serve = append(d.out.Serve, one.lease)
	}
}

// idleSince counts from the claim if no pod ever had an address of the block.
func (d *decider) idleSince(h holding) int64 {
	return max(h.block.IdleSince, h.lease.Created, d.in.Started)
}

func (d *decider) idleLongEnough(h holding) bool {
	return d.isDue(d.idleSince(h) + d.in.IdleAfter)
}

// isDue reports whether a time has come, and else has Next be no later.
func (d *decider) isDue(due int64) bool {
	if due <= d.in.Now {
		return true
	}
	if d.out.Next == 0 || due < d.out.Next {
		d.out.Next = due
	}
	return false
}

// low is how many free addresses of a family make a node claim another block:
// an eighth of its largest block, at least 8 and at most 32, but never more than
// half, so that an empty block is enough whatever its size.
func low(size uint64) uint64 { return max(1, min(max(size/8, 8), 32, size/2)) }

func lowOf(hs []holding) uint64 {
	most := uint64(0)
	for _, h := range hs {
		most = max(most, low(h.block.Size))
	}
	return most
}

func freeOf(hs []holding) uint64 {
	sum := uint64(0)
	for _, h := range hs {
		sum = saturatingAdd(sum, h.block.Free)
	}
	return sum
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
