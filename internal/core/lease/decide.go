// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
)

// Decide says what the node should do now. Equal inputs give equal decisions,
// whatever the order of Blocks and Taken.
func Decide(in Input) Decision {
	d := newDecider(in)
	if in.Node == nil {
		d.keep()
		return d.out
	}
	d.reclaim()
	if len(in.Node.PodCIDRs) == 0 && len(d.normal) == 0 {
		d.wait("%s", d.whyNoPool())
	}
	demanded := d.demanded()
	for _, f := range families {
		held := d.heldIn(f)
		d.takeAssigned(f)
		d.takeFromPools(f, held)
		for _, p := range demanded {
			d.takeDemanded(f, p, held)
		}
		d.dropRejected(held)
		d.serveOutdated(f, held)
		d.serveGood(held)
		d.serveOnRequest(held)
	}
	d.correct()
	slices.SortFunc(d.out.Serve, bySubnet)
	return d.out
}

// decider holds what is derived from the Input on the way to the Decision.
type decider struct {
	in     Input
	own    []cluster.Lease // this node's blocks, ascending
	ofPods []cluster.Lease // this node's leases of pods, ascending
	pools  []cluster.Pool  // those that select the node
	normal []cluster.Pool  // those of them that need no request
	busy   []netip.Prefix  // taken by what the view does not show: Taken, and this decision's claims
	// regained are blocks without a lease that this decision claims again and
	// that the node may give addresses from.
	regained []Block
	out      Decision
}

func newDecider(in Input) *decider {
	d := &decider{in: in, busy: slices.Clone(in.Taken)}
	for _, l := range in.Leases {
		switch {
		case l.Node != in.Name:
		case l.Pod != "":
			d.ofPods = append(d.ofPods, l)
		default:
			d.own = append(d.own, l)
		}
	}
	slices.SortFunc(d.own, bySubnet)
	slices.SortFunc(d.ofPods, bySubnet)
	if in.Node != nil && len(in.Node.PodCIDRs) == 0 {
		for _, p := range in.Pools {
			if p.Selector.Matches(in.Node.Labels) {
				d.pools = append(d.pools, p)
				if !p.OnRequest {
					d.normal = append(d.normal, p)
				}
			}
		}
	}
	return d
}

func bySubnet(a, b cluster.Lease) int { return a.Subnet.Compare(b.Subnet) }

func (d *decider) wait(format string, args ...any) {
	d.out.Waiting = append(d.out.Waiting, fmt.Sprintf(format, args...))
}

// keep serves what the node has.
func (d *decider) keep() {
	for _, l := range d.own {
		if d.rejection(l) == "" {
			d.out.Serve = append(d.out.Serve, l)
		}
	}
	d.wait("Node %s is not in the registry", d.in.Name)
}

// claim adds a lease to the claims, or says why it cannot.
func (d *decider) claim(subnet netip.Prefix) {
	if !d.in.Reachable {
		d.wait("%s cannot be claimed: the registry takes no claims now", subnet)
		return
	}
	d.busy = append(d.busy, subnet)
	l := cluster.Lease{Subnet: subnet}
	d.fill(&l)
	d.out.Claim = append(d.out.Claim, l)
}

// fill makes the lease say what peers need. What a pod's lease says of the pool
// is not for this package to judge.
func (d *decider) fill(l *cluster.Lease) {
	l.Node, l.NodeUID = d.in.Name, d.in.Node.UID
	l.Addresses, l.VTEP = d.in.Addresses, d.in.VTEP
	if l.Pod != "" {
		return
	}
	if slices.Contains(d.in.Node.PodCIDRs, l.Subnet) {
		l.Pool = ""
	} else if p, ok := poolOf(d.in.Pools, l.Subnet); ok {
		l.Pool = p.Name
	}
}

// correct updates the own leases that stay.
func (d *decider) correct() {
	if !d.in.Reachable {
		return
	}
	for _, l := range slices.Concat(d.own, d.ofPods) {
		want := l
		d.fill(&want)
		same := l.NodeUID == want.NodeUID && l.Pool == want.Pool && l.VTEP == want.VTEP &&
			slices.Equal(l.Addresses, want.Addresses)
		goes := slices.ContainsFunc(d.out.Release, func(r cluster.Lease) bool { return r.Subnet == l.Subnet })
		if !same && !goes {
			d.out.Update = append(d.out.Update, want)
		}
	}
}

// holder returns the lease that keeps others from having the subnet; of several,
// the lowest.
func (d *decider) holder(subnet netip.Prefix) (cluster.Lease, bool) {
	var found cluster.Lease
	for _, l := range d.in.Leases {
		if claims(l, subnet) && (!found.Subnet.IsValid() || l.Subnet.Compare(found.Subnet) < 0) {
			found = l
		}
	}
	return found, found.Subnet.IsValid()
}

// claims reports whether the lease keeps others from leasing the block. That of
// a pod does so only if its address is the block's gateway.
func claims(l cluster.Lease, block netip.Prefix) bool {
	return l.Subnet.Overlaps(block) && (l.Pod == "" || l.Subnet.Addr() == block.Addr().Next())
}

func (d *decider) isBusy(subnet netip.Prefix) bool {
	return slices.ContainsFunc(d.busy, subnet.Overlaps)
}
