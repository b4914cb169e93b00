// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/registry"
)

// announce implements engine.AddRequest.Announce: addresses that are in no
// block of this node get leases of their own, and those that the pod keeps are
// written down.
func (e *errand) announce(ctx context.Context, a engine.Attachment) error {
	if err := e.lease(ctx); err != nil {
		return e.refuse(err)
	}
	if err := e.settle(ctx); err != nil {
		return e.refuse(err)
	}
	if !e.answer.Keep {
		return nil
	}
	c := cluster.Claim{Namespace: e.pod.Namespace, Name: e.pod.Name, Owner: e.pod.Controller}
	for _, addr := range a.Spec.Addresses {
		c.Addresses = append(c.Addresses, addr.Addr)
	}
	slices.SortFunc(c.Addresses, netip.Addr.Compare) // IPv4 first
	err := e.cluster.pods.KeepAddresses(ctx, c)
	if errors.Is(err, registry.ErrExists) {
		return cni.Errorf(cni.CodeTryAgain, "AddressClaim %s has appeared meanwhile; the next attempt takes its addresses", c.Key())
	}
	if err != nil {
		return e.refuse(fmt.Errorf("create AddressClaim %s: %w", c.Key(), err))
	}
	return nil
}

// settle waits until the node is ready for the pod's addresses: that a route to
// where one was is gone, being in the way of the pod's own, and that what comes
// from one is masqueraded as from any other. Who moved the address here is no
// matter: it may have been an attempt before.
func (e *errand) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	if keys := e.formerRoutes(); len(keys) > 0 {
		if err := e.fabric.WaitRoutes(ctx, keys...); err != nil {
			return fmt.Errorf("wait until the former route of the pod's address is gone: %w", err)
		}
	}
	for _, addr := range e.single {
		for !slices.Contains(e.Agent.network.Load().node.Pools, netip.PrefixFrom(addr, addr.BitLen())) {
			e.wake()
			pause(ctx, breath)
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("wait until the node knows the pod's address %s: %w", addr, err)
			}
		}
	}
	if len(e.single) == 0 {
		return nil
	}
	return e.fabric.Wait(ctx, fabric.NAT)
}

// formerRoutes are those that lead, or led, to where the pod's addresses were.
func (e *errand) formerRoutes() (keys []topology.RouteKey) {
	for _, addr := range e.single {
		keys = append(keys, topology.RouteKey{Dst: netip.PrefixFrom(addr, addr.BitLen())})
	}
	for _, l := range e.answer.Drop {
		keys = append(keys, topology.RouteKey{Dst: l.Subnet})
	}
	return keys
}

// lease creates and takes over what the answer says. A lease that is there
// already is this pod's, or the address is somebody else's.
func (e *errand) lease(ctx context.Context) error {
	if len(e.single)+len(e.answer.Drop) == 0 {
		return nil
	}
	release, err := e.cluster.claimSingle(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, l := range e.answer.Drop {
		if err := e.cluster.registry.Delete(ctx, l); err != nil {
			return fmt.Errorf("delete SubnetLease %s, whose address is in a block of this node: %w", l.Name(), err)
		}
	}
	for _, addr := range e.single {
		subnet := netip.PrefixFrom(addr, addr.BitLen())
		want := cluster.Lease{Subnet: subnet, Pool: e.poolAround(addr), Pod: e.pod.Key()}
		for _, l := range slices.Concat(e.answer.Lease, e.answer.TakeOver) {
			if l.Subnet == subnet {
				want = l
			}
		}
		if err := e.leaseOne(ctx, want); err != nil {
			return fmt.Errorf("lease address %s for pod %s: %w", addr, e.pod.Key(), err)
		}
	}
	return nil
}

// poolAround returns the name of the pool that has the address; "": none. A lease
// that was there when the answer was made may have been given back since.
func (e *errand) poolAround(addr netip.Addr) string {
	for _, p := range e.seen.Load().pools {
		if slices.ContainsFunc(p.Ranges, func(r cluster.PoolRange) bool { return r.CIDR.Contains(addr) }) {
			return p.Name
		}
	}
	return ""
}

// leaseOne creates the lease, or makes the one that the pod has this node's.
func (e *errand) leaseOne(ctx context.Context, want cluster.Lease) error {
	e.sign(&want)
	if want.UID == "" {
		if err := e.checkFree(ctx, want); err != nil {
			return err
		}
		err := e.cluster.registry.Create(ctx, want)
		if !errors.Is(err, registry.ErrExists) {
			return err
		}
	}
	var known cluster.Lease
	e.cluster.objects.View(func(s *registry.State) { known = s.Leases[want.Name()] })
	switch {
	case known.UID == "":
		return cni.Errorf(cni.CodeTryAgain, "SubnetLease %s has appeared this moment; the next attempt sees whose it is", want.Name())
	case known.Pod != want.Pod:
		return &wish.RefusedError{Reason: wish.AddressInUse, Msg: fmt.Sprintf(
			"SubnetLease %s says that it is the address of pod %s on node %s", known.Name(), known.Pod, known.Node)}
	}
	want.UID, want.Version, want.Created, want.Pool = known.UID, known.Version, known.Created, known.Pool
	err := e.cluster.registry.Replace(ctx, want)
	if errors.Is(err, registry.ErrConflict) {
		return cni.Errorf(cni.CodeTryAgain, "SubnetLease %s is being changed by node %s", known.Name(), known.Node)
	}
	return err
}

// checkFree refuses an address that a pod has without a lease of its own: it got
// it from its node's block, before somebody reserved it.
func (e *errand) checkFree(ctx context.Context, want cluster.Lease) error {
	if e.cluster.pods == nil {
		return nil
	}
	holder, err := e.cluster.pods.PodWith(ctx, want.Subnet.Addr())
	if err != nil || holder == "" || holder == want.Pod {
		return err
	}
	return &wish.RefusedError{Reason: wish.AddressInUse, Msg: fmt.Sprintf(
		"%s is the address of pod %s; ask for another one, or delete that pod", want.Subnet.Addr(), holder)}
}

// sign makes the lease this node's.
func (e *errand) sign(l *cluster.Lease) {
	seen := e.seen.Load()
	id := seen.identity()
	l.Node, l.Addresses, l.VTEP = e.cluster.node, id.Addresses, id.VTEP
	if seen.node != nil {
		l.NodeUID = seen.node.UID
	}
}

// giveBack deletes the leases of single addresses that no pod here has any
// more. It ends at the first failure: what is left is for the next attempt.
func (a *Agent) giveBack(ctx context.Context) error {
	if len(a.read.single) == 0 || !a.inContact() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	release, err := a.cluster.claimSingle(ctx) // no ADD counts on one of them meanwhile
	if err != nil {
		return err
	}
	defer release()
	used := map[netip.Addr]bool{}
	err = a.store.View(ctx, func(f *facts.Facts) error {
		for rec := range f.Each {
			for _, addr := range rec.Addresses {
				used[addr] = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, l := range a.read.single {
		if used[l.Subnet.Addr()] {
			continue
		}
		if err := a.cluster.registry.Delete(ctx, l); err != nil {
			return fmt.Errorf("delete SubnetLease %s: %w", l.Name(), err)
		}
		a.log.Info("lease of an address given back", "lease", l.Name(), "pod", l.Pod)
	}
	return nil
}

// inContact reports whether the registry is in reach, as far as is known.
func (a *Agent) inContact() (contact bool) {
	a.cluster.objects.View(func(s *registry.State) { contact = s.Err == nil })
	return contact
}
