// SPDX-License-Identifier: Apache-2.0

package wish

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
)

// Resolve says what to do for a pod that asks for w. free tells how many
// addresses IPAM has left in a block of this node; it is asked only where the
// pod asks for a pool. The error is a *RefusedError.
func Resolve(w Wish, v View, free func(lease cluster.Lease) uint64) (Answer, error) {
	r := resolver{w: w, v: v, pod: v.Pod.Key()}
	r.claim, r.claimed = v.Claims[r.pod]
	steps := []func() error{r.checkSticky, r.checkPool, r.takeAddresses, func() error { return r.takeBlocks(free) }, r.checkMTU}
	for _, step := range steps {
		if err := step(); err != nil {
			return Answer{}, err
		}
	}
	if r.out.Demand != "" {
		return Answer{Demand: r.out.Demand}, nil
	}
	r.out.Keep = w.Sticky && !r.claimed
	return r.out, nil
}

// resolver is what is known, and what was decided so far.
type resolver struct {
	w       Wish
	v       View
	pod     string        // its key
	claim   cluster.Claim // of the pod
	claimed bool          // there is one
	// fixed are the families in which the pod must get an address, and own the
	// blocks of this node that such addresses are in.
	fixed [2]bool
	own   []netip.Prefix
	out   Answer
}

func refuse(reason, format string, args ...any) error {
	return &RefusedError{Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

func (r *resolver) checkSticky() error {
	if r.w.Sticky && r.v.Pod.Controller == (cluster.Owner{}) {
		return refuse(StickyWithoutController, "%s: pod %s has no controller, such as a StatefulSet, for which its addresses could be kept; "+
			"give it one, or ask for an address by %s or %s", Sticky, r.pod, IPv4, IPv6)
	}
	return nil
}

// checkPool checks the pool that the pod asks for.
func (r *resolver) checkPool() error {
	if r.w.Pool == "" {
		return nil
	}
	p, there := r.poolNamed(r.w.Pool)
	if !there && r.v.PoolRefused != "" {
		return refuse(UnknownPool, "%s: IPPool %s is not in use until it is mended: %s", Pool, r.w.Pool, r.v.PoolRefused)
	}
	if !there {
		return refuse(UnknownPool, "%s: there is no IPPool %s in use; create it, or ask for another", Pool, r.w.Pool)
	}
	if !p.Selector.Matches(r.v.Labels) {
		return refuse(PoolNotForNode, "%s: IPPool %s does not select node %s; run the pod on a node that it selects, or ask for another", Pool, p.Name, r.v.Node)
	}
	return nil
}

func (r *resolver) poolNamed(name string) (cluster.Pool, bool) {
	i := slices.IndexFunc(r.v.Pools, func(p cluster.Pool) bool { return p.Name == name })
	if i < 0 {
		return cluster.Pool{}, false
	}
	return r.v.Pools[i], true
}

// takeAddresses decides on the addresses that the pod must get.
func (r *resolver) takeAddresses() error {
	for f := range r.fixed {
		t, ok, err := r.target(f)
		if err == nil && ok {
			r.fixed[f] = true
			r.out.Addresses = append(r.out.Addresses, t.addr)
			err = r.place(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// target returns the address of the family that the pod must get, if any: that
// which it asks for, which must be the one that it keeps; or that which it keeps.
func (r *resolver) target(f int) (t target, ok bool, err error) {
	kept, keeps := inFamily(r.claim.Addresses, f)
	asked, asks := inFamily(r.w.Addresses, f)
	switch {
	case asks && r.w.Sticky && keeps && asked != kept:
		return t, false, refuse(ClaimDiffers, "%s: %s is not %s, which AddressClaim %s keeps for the pod; ask for that, or delete the claim",
			annotations[f], asked, kept, r.pod)
	case asks:
		return target{addr: asked, by: annotations[f], kept: keeps && asked == kept, advice: "ask for another address"}, true, nil
	case r.w.Sticky && keeps:
		return target{addr: kept, by: "AddressClaim " + r.pod, kept: true, advice: "delete the claim, and the pod gets another address"}, true, nil
	}
	return t, false, nil
}

// annotations ask for an address, by family.
var annotations = [2]string{IPv4, IPv6}

func inFamily(addrs []netip.Addr, f int) (netip.Addr, bool) {
	i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return family(a) == f })
	if i < 0 {
		return netip.Addr{}, false
	}
	return addrs[i], true
}

// family is 0 for IPv4 and 1 for IPv6.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// takeBlocks decides on the blocks for the rest of the addresses. Of a pool that
// the pod asks for, each family must have something free.
func (r *resolver) takeBlocks(free func(cluster.Lease) uint64) error {
	enough := r.fixed
	for _, l := range r.v.Served {
		f := family(l.Subnet.Addr())
		switch {
		case r.fixed[f] && slices.Contains(r.own, l.Subnet), !r.fixed[f] && r.suits(l):
			r.out.Blocks = append(r.out.Blocks, l)
			enough[f] = enough[f] || r.w.Pool == "" || free(l) > 0
		}
	}
	if r.w.Pool == "" {
		return nil
	}
	p, _ := r.poolNamed(r.w.Pool)
	for _, in := range p.Ranges {
		switch {
		case enough[family(in.CIDR.Addr())]:
		case slices.ContainsFunc(r.v.Served, func(l cluster.Lease) bool { return l.Pool == "" }):
			return refuse(PoolNotForNode, "%s: node %s has the subnets that the cluster assigns to it, and leases none of IPPool %s; "+
				"do without it, or ask for an address that the pool reserves", Pool, r.v.Node, p.Name)
		default:
			r.out.Demand = p.Name
		}
	}
	return nil
}

// suits reports whether the pod may get any address of the block.
func (r *resolver) suits(l cluster.Lease) bool {
	if r.w.Pool != "" {
		return l.Pool == r.w.Pool
	}
	p, _ := r.poolNamed(l.Pool)
	return !p.OnRequest
}

// checkMTU: the kernel takes IPv6 off an interface with less than it needs.
func (r *resolver) checkMTU() error {
	if r.w.MTU == 0 || r.w.MTU >= attach.MinMTU6 {
		return nil
	}
	ipv6 := r.fixed[1] || slices.ContainsFunc(r.out.Blocks, func(l cluster.Lease) bool { return l.Subnet.Addr().Is6() })
	if ipv6 {
		return refuse(InvalidAnnotation, "%s: is %d, but the pod gets an IPv6 address, which needs %d at least", MTU, r.w.MTU, attach.MinMTU6)
	}
	return nil
}

// blockAround returns the block that the address is in: one that this node gives
// addresses from, or else the oldest lease, which is the one that holds.
func (r *resolver) blockAround(a netip.Addr) (block cluster.Lease, served, leased bool) {
	for _, l := range r.v.Served {
		if l.Subnet.Contains(a) {
			return l, true, true
		}
	}
	for _, l := range r.v.Leases {
		if l.Pod == "" && l.Subnet.Contains(a) && (!leased || older(l, block) < 0) {
			block, leased = l, true
		}
	}
	return block, false, leased
}

func older(a, b cluster.Lease) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name(), b.Name()))
}
