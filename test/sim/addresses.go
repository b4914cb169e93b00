// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/leasing"
)

// cooldown is how long a released address rests, in nanoseconds.
const cooldown = int64(30 * time.Second)

// addresses is a node's IPAM. It outlives the process, as the journal does.
type addresses struct {
	node     *node
	pool     ipam.Pool // addresses are given from
	usage    *ipam.Usage
	draining []netip.Prefix // give no address any more, but pods have some
	pods     []string       // running ones
	started  int            // pods, ever
}

var _ leasing.Addresses = (*addresses)(nil)

func newAddresses(n *node) *addresses { return &addresses{node: n, usage: ipam.NewUsage()} }

var errDisk = errors.New("disk full")

// Blocks implements leasing.Addresses.
func (a *addresses) Blocks(now time.Time) ([]lease.Block, error) {
	if err := a.fault("reads its blocks"); err != nil {
		return nil, err
	}
	var blocks []lease.Block
	for _, set := range a.pool.Sets {
		for _, r := range set {
			blocks = append(blocks, a.blockOf(r, now))
		}
	}
	for _, subnet := range a.draining {
		r, err := ipam.NewRange(ipam.Range{Subnet: subnet})
		if err != nil {
			return nil, err
		}
		b := a.blockOf(r, now)
		b.Free = 0
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func (a *addresses) blockOf(r ipam.Range, now time.Time) lease.Block {
	st := a.usage.Stats(ipam.Set{r}, now.UnixNano(), cooldown)
	b := lease.Block{Subnet: r.Subnet, Size: st.Total, Free: st.Free - min(st.Free, uint64(st.Cooling))}
	if st.Used+st.Foreign > 0 {
		return b
	}
	b.IdleSince = 1
	for addr, at := range a.usage.Released {
		if r.Subnet.Contains(addr) {
			b.IdleSince = max(b.IdleSince, at)
		}
	}
	return b
}

// Serve implements leasing.Addresses.
func (a *addresses) Serve(_ context.Context, leases []cluster.Lease) error {
	if err := a.fault("serves"); err != nil {
		return err
	}
	pool, err := poolOf(leases, a.node.pools)
	if err != nil {
		return err
	}
	dropped := a.blocks()
	a.pool = pool
	dropped = slices.DeleteFunc(dropped, func(p netip.Prefix) bool { return slices.Contains(pool.Subnets(), p) })
	slices.SortFunc(dropped, netip.Prefix.Compare)
	a.draining = slices.DeleteFunc(slices.Compact(dropped), func(p netip.Prefix) bool { return !a.used(p) })

	n := a.node
	n.w.trace.add(n.w.now, "  %s serves %v, drains %v", n.name, pool.Subnets(), a.draining)
	n.check()
	n.setNode()
	if len(a.draining) > 0 {
		n.dying = n.dying || n.w.chance(8) // when there is something to forget
		return fmt.Errorf("drop %v: %w", a.draining, leasing.ErrInUse)
	}
	return nil
}

// poolOf makes a set of each family, without what is reserved.
func poolOf(leases []cluster.Lease, pools []cluster.Pool) (ipam.Pool, error) {
	var families [2]ipam.Set
	for _, l := range leases {
		r := ipam.Range{Subnet: l.Subnet}
		for _, p := range pools {
			for _, reserved := range p.Reserved {
				if p.Name == l.Pool && reserved.Overlaps(l.Subnet) && reserved.Bits() >= l.Subnet.Bits() {
					r.Exclude = append(r.Exclude, reserved)
				}
			}
		}
		r, err := ipam.NewRange(r)
		if err != nil {
			return ipam.Pool{}, err
		}
		families[familyOf(l.Subnet.Addr())] = append(families[familyOf(l.Subnet.Addr())], r)
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

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// fault makes a call fail now and then, or the process die.
func (a *addresses) fault(what string) error {
	n := a.node
	switch {
	case n.dying:
		return errDisk
	case n.w.chance(3000):
		n.w.trace.add(n.w.now, "  %s %s: it dies", n.name, what)
		n.dying = true
		return errDisk
	case n.w.chance(1000):
		n.w.trace.add(n.w.now, "  %s %s: %v", n.name, what, errDisk)
		return errDisk
	}
	return nil
}

// restart keeps everything: which blocks pods have addresses of is in the
// journal.
func (a *addresses) restart() {
	if a.node.w.options.mutant.drain {
		a.draining = nil
	}
}

// blocks returns the blocks that addresses are given from, or that pods have
// addresses of.
func (a *addresses) blocks() []netip.Prefix { return append(a.pool.Subnets(), a.draining...) }

// used reports whether a pod has an address of the block.
func (a *addresses) used(block netip.Prefix) bool {
	for addr := range a.usage.Used {
		if block.Contains(addr) {
			return true
		}
	}
	return false
}

// start starts a pod, if there is an address of every family for it.
func (a *addresses) start() bool {
	n := a.node
	if !a.complete() {
		return false
	}
	a.started++
	pod := fmt.Sprintf("%s/pod%d", n.name, a.started)
	grant, err := a.usage.Allocate(a.pool, ipam.Request{Owner: pod, Now: n.w.now.UnixNano(), Cooldown: cooldown, Avoid: n.w.kept})
	if err != nil {
		return false
	}
	for _, g := range grant {
		if err := a.usage.Take(g.Addr, pod); err != nil {
			n.w.violated("%s gives pod %s an address: %v", n.name, pod, err)
		}
		n.w.checkPod(n, pod, g)
	}
	a.pods = append(a.pods, pod)
	return true
}

// complete reports whether the node has a block of every family: a pod that
// should have two addresses does not start with one.
func (a *addresses) complete() bool {
	var want, have [2]bool
	for _, p := range a.pool.Subnets() {
		have[familyOf(p.Addr())] = true
	}
	for _, r := range a.node.wantsOf(a.node.pools) {
		want[familyOf(r.Addr())] = true
	}
	return have != [2]bool{} && (have[0] || !want[0]) && (have[1] || !want[1])
}

// stop stops a pod.
func (a *addresses) stop(i int) {
	pod := a.pods[i]
	a.pods = slices.Delete(a.pods, i, i+1)
	for _, addr := range a.usage.Held(pod) {
		if a.node.w.pods[addr] == pod {
			delete(a.node.w.pods, addr)
		}
		a.usage.Free(addr, a.node.w.now.UnixNano())
	}
}
