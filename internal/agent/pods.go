// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/timeline"
)

const (
	// lookupPatience bounds the one request for a pod that the watch has not
	// brought yet.
	lookupPatience = 5 * time.Second
	// demandPatience is how long an ADD waits for a block of the pool that its
	// pod asks for; then the runtime repeats it.
	demandPatience = 3 * time.Second
)

// errand is one call for one pod: what the pod asks for, and what follows.
type errand struct {
	*Agent
	ctx    context.Context
	verb   string
	course *timeline.Call
	pod    cluster.Pod // as far as it is known; at least namespace, name and UID
	answer wish.Answer
	// single are the addresses that are in no block of this node.
	single []netip.Addr
}

// network implements plugin.Verbs.Network: the network of this pod.
func (e *errand) network(cfg *cni.Config) (engine.Network, *cni.Error) {
	if why := *e.unready.Load(); why != "" {
		return engine.Network{}, cni.Errorf(cni.CodeTryAgain, "%s", why)
	}
	n := e.Agent.network.Load().For(cfg.Name, cfg.MTU)
	if e.cluster == nil {
		return n, nil
	}
	if e.verb == cni.Status && e.cluster.pods != nil {
		// A node whose addresses are all in use is not broken. The kubelet would
		// report it as NotReady, and the pods that run well would be evicted.
		n.Pool = ipam.Pool{}
		return n, nil
	}
	pod, cerr := e.find(cfg.Args.Pod)
	if cerr != nil {
		return n, cerr
	}
	e.pod = pod
	e.course.Mark(timeline.PodKnown)
	w, err := wish.Parse(pod.Annotations, e.cluster.namespace(pod.Namespace).Annotations)
	if err != nil {
		return n, e.refuse(err)
	}
	if err := reconcileWishes(cfg, w, &n); err != nil {
		return n, e.refuse(err)
	}
	if err := e.resolve(w); err != nil {
		return n, e.refuse(err)
	}
	if len(cfg.Want) == 0 {
		cfg.Want = e.answer.Addresses
	}
	if err := e.choice(&n); err != nil {
		return n, e.refuse(err)
	}
	n.Avoid = e.avoid
	return n, nil
}

// find returns the pod that the runtime names: as the watch has brought it, or
// else by asking. One that the registry does not have asks for nothing: a
// static pod may run before the API server knows of it.
func (e *errand) find(named attach.Pod) (cluster.Pod, *cni.Error) {
	pod := cluster.Pod{Namespace: named.Namespace, Name: named.Name, UID: named.UID}
	if named.Name == "" || e.cluster.pods == nil {
		return pod, nil
	}
	var found bool
	e.cluster.objects.View(func(s *registry.State) {
		if known, there := s.Pods[pod.Key()]; there && isPod(known, named.UID) {
			pod, found = known, true
		}
	})
	if found {
		return pod, nil
	}
	ctx, cancel := context.WithTimeout(e.ctx, lookupPatience)
	defer cancel()
	live, err := e.cluster.pods.Pod(ctx, named.Namespace, named.Name)
	switch {
	case errors.Is(err, registry.ErrGone):
		return pod, nil
	case err != nil:
		return pod, cni.Errorf(cni.CodeTryAgain, "look up what pod %s asks of its network: %w", pod.Key(), err)
	}
	if !isPod(live, named.UID) {
		return pod, cni.Errorf(cni.CodeTryAgain, "the sandbox is of a pod %s with UID %s, but that has been replaced by one with UID %s; its own sandbox gets the network",
			pod.Key(), named.UID, live.UID)
	}
	return live, nil
}

// isPod reports whether the runtime's UID is the pod's: of a static pod it is
// the hash of its configuration, and the API server has another.
func isPod(p cluster.Pod, uid string) bool { return uid == "" || uid == p.UID || uid == p.Mirror }

// reconcileWishes lets the call follow the pod's wishes that are not about
// addresses. What the call itself asks for counts, but must not differ.
func reconcileWishes(cfg *cni.Config, w wish.Wish, n *engine.Network) error {
	refuse := func(annotation string, wanted, found any) error {
		return &wish.RefusedError{Reason: wish.InvalidAnnotation, Msg: fmt.Sprintf(
			"%s asks for %v, but the call of the runtime for %v; ask for it in one place", annotation, wanted, found)}
	}
	if !w.MAC.IsZero() {
		if !cfg.MAC.IsZero() && cfg.MAC != w.MAC {
			return refuse(wish.MAC, w.MAC, cfg.MAC)
		}
		cfg.MAC = w.MAC
	}
	if len(w.Addresses) > 0 && len(cfg.Want) > 0 && !slices.Equal(w.Addresses, cfg.Want) {
		return refuse(wish.IPv4+" or "+wish.IPv6, w.Addresses, cfg.Want)
	}
	if w.MTU != 0 {
		if w.MTU > n.MTU {
			return &wish.RefusedError{Reason: wish.InvalidAnnotation, Msg: fmt.Sprintf(
				"%s asks for %d bytes, but this node's network takes %d at most; ask for less", wish.MTU, w.MTU, n.MTU)}
		}
		n.MTU = w.MTU
	}
	return nil
}

// resolve decides on the pod's addresses. A pool of which this node has nothing
// free is asked for, and waited for a while.
func (e *errand) resolve(w wish.Wish) error {
	deadline := time.Now().Add(demandPatience)
	for {
		seen := e.seen.Load()
		v := wish.View{Node: e.cluster.node, Pod: e.pod, Pools: seen.pools, Served: seen.served}
		if seen.node != nil {
			v.Labels = seen.node.Labels
		}
		free, err := e.free(w, seen)
		if err != nil {
			return err
		}
		e.cluster.objects.View(func(s *registry.State) {
			v.Leases, v.Claims = s.Leases, s.Claims
			e.answer, err = wish.Resolve(w, v, func(l cluster.Lease) uint64 { return free[l.Subnet] })
		})
		if err != nil || e.answer.Demand == "" {
			return err
		}
		if !time.Now().Before(deadline) {
			return &exhaustedPoolError{node: e.cluster.node, pool: e.answer.Demand, waiting: e.cluster.keeper.Status().Waiting}
		}
		e.cluster.keeper.Demand(e.answer.Demand)
		e.wake()
		pause(e.ctx, breath)
		if err := e.ctx.Err(); err != nil {
			return err
		}
	}
}

// exhaustedPoolError says that a pool has no free address for this node.
type exhaustedPoolError struct {
	node, pool string
	waiting    []string // why the node lacks blocks, of all pools
}

func (e *exhaustedPoolError) Error() string {
	var why []string
	for _, w := range e.waiting {
		if strings.Contains(w, "IPPool "+e.pool) {
			why = append(why, w)
		}
	}
	if len(why) == 0 {
		why = append(why, "the block that it asks for is not there yet")
	}
	return fmt.Sprintf("node %s has no free address of IPPool %s: %s; delete pods that use the pool, or add another one",
		e.node, e.pool, strings.Join(why, "; "))
}

// free returns how many addresses each block of the pool that is asked for has
// left. It is found out beforehand: whoever looks at the registry must not wait
// for the journal.
func (e *errand) free(w wish.Wish, seen *inputs) (map[netip.Prefix]uint64, error) {
	if w.Pool == "" {
		return nil, nil
	}
	free := map[netip.Prefix]uint64{}
	cooldown := int64(e.Agent.network.Load().Cooldown)
	err := e.store.View(e.ctx, func(f *facts.Facts) error {
		usage := f.Usage(facts.Veth, "")
		for _, l := range seen.served {
			if l.Pool != w.Pool {
				continue
			}
			r, err := seen.rangeOf(l)
			if err != nil {
				return err
			}
			free[l.Subnet] = usage.Stats(ipam.Set{r}, time.Now().UnixNano(), cooldown).Free
		}
		return nil
	})
	return free, err
}

// choice makes the answer a pool: what is left of the node's own, and addresses
// that are in none of its blocks as ranges of their own.
func (e *errand) choice(n *engine.Network) error {
	seen := e.seen.Load()
	if !seen.decided && len(e.answer.Addresses) == 0 {
		*n = n.Ordinary() // what the journal had serves those who ask for nothing
		return nil
	}
	var families [2]ipam.Set
	for _, l := range e.answer.Blocks {
		r, err := seen.rangeOf(l)
		if err != nil {
			return err
		}
		families[family(l.Subnet.Addr())] = append(families[family(l.Subnet.Addr())], r)
	}
	for _, addr := range e.answer.Addresses {
		set := &families[family(addr)]
		if slices.ContainsFunc(*set, func(r ipam.Range) bool { return r.Contains(addr) }) {
			continue
		}
		r, err := ipam.NewRange(ipam.Range{Subnet: netip.PrefixFrom(addr, addr.BitLen())})
		if err != nil {
			return err
		}
		*set = ipam.Set{r}
		e.single = append(e.single, addr)
	}
	sets := slices.DeleteFunc(slices.Clone(families[:]), func(s ipam.Set) bool { return len(s) == 0 })
	n.Pool = ipam.Pool{}
	if len(sets) == 0 && e.verb == cni.Add {
		return cni.Errorf(cni.CodeTryAgain, "node %s has no addresses for pods that ask for nothing: %s",
			e.cluster.node, strings.Join(e.cluster.keeper.Status().Waiting, "; "))
	}
	if len(sets) == 0 {
		return nil // a node that only pods run on which ask for a pool
	}
	pool, err := ipam.NewPool(sets)
	n.Pool = pool
	// A pool may have one family where the node has two.
	n.Routes = slices.DeleteFunc(slices.Clone(n.Routes), func(r attach.Route) bool { return len(families[family(r.Dst.Addr())]) == 0 })
	return err
}

// avoid reports addresses that this pod must not get: others keep them, or the
// node gives them no more.
func (e *errand) avoid(addr netip.Addr) bool {
	if e.kept.Load().Avoid(e.pod.Key(), e.answer.Addresses)(addr) {
		return true
	}
	return !slices.Contains(e.single, addr) && e.notGranted(addr)
}

// announce implements engine.AddRequest.Announce: addresses that are in no
// block of this node get leases of their own, and those that the pod keeps are
// written down.
func (e *errand) announce(ctx context.Context, a engine.Attachment) error {
	moved, err := e.lease(ctx)
	if err != nil {
		return e.refuse(err)
	}
	if err := e.settle(ctx, moved); err != nil {
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
	err = e.cluster.pods.KeepAddresses(ctx, c)
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
// from one is masqueraded as from any other.
func (e *errand) settle(ctx context.Context, moved bool) error {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	if moved {
		if err := e.fabric.Wait(ctx, fabric.Routes); err != nil {
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

// lease creates and takes over what the answer says. A lease that is there
// already is this pod's, or the address is somebody else's.
func (e *errand) lease(ctx context.Context) (moved bool, err error) {
	if len(e.single)+len(e.answer.Drop) == 0 {
		return false, nil
	}
	release, err := e.cluster.claimSingle(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	for _, l := range e.answer.Drop {
		if err := e.cluster.registry.Delete(ctx, l); err != nil {
			return false, fmt.Errorf("delete SubnetLease %s, whose address is in a block of this node: %w", l.Name(), err)
		}
		moved = true
	}
	for _, addr := range e.single {
		subnet := netip.PrefixFrom(addr, addr.BitLen())
		want := cluster.Lease{Subnet: subnet, Pod: e.pod.Key()}
		for _, l := range slices.Concat(e.answer.Lease, e.answer.TakeOver) {
			if l.Subnet == subnet {
				want = l
			}
		}
		replaced, err := e.leaseOne(ctx, want)
		if err != nil {
			return false, fmt.Errorf("lease address %s for pod %s: %w", addr, e.pod.Key(), err)
		}
		moved = moved || replaced
	}
	return moved, nil
}

// leaseOne creates the lease, or makes the one that the pod has this node's.
func (e *errand) leaseOne(ctx context.Context, want cluster.Lease) (replaced bool, err error) {
	e.sign(&want)
	if want.UID == "" {
		if err := e.checkFree(ctx, want); err != nil {
			return false, err
		}
		err := e.cluster.registry.Create(ctx, want)
		if !errors.Is(err, registry.ErrExists) {
			return false, err
		}
	}
	var known cluster.Lease
	e.cluster.objects.View(func(s *registry.State) { known = s.Leases[want.Name()] })
	switch {
	case known.UID == "":
		return false, cni.Errorf(cni.CodeTryAgain, "SubnetLease %s has appeared this moment; the next attempt sees whose it is", want.Name())
	case known.Pod != want.Pod:
		return false, &wish.RefusedError{Reason: wish.AddressInUse, Msg: fmt.Sprintf(
			"SubnetLease %s says that it is the address of pod %s on node %s", known.Name(), known.Pod, known.Node)}
	}
	want.UID, want.Version, want.Created, want.Pool = known.UID, known.Version, known.Created, known.Pool
	err = e.cluster.registry.Replace(ctx, want)
	if errors.Is(err, registry.ErrConflict) {
		return false, cni.Errorf(cni.CodeTryAgain, "SubnetLease %s is being changed by node %s", known.Name(), known.Node)
	}
	return known.Node != want.Node, err
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
	id := e.identity()
	l.Node, l.Addresses, l.VTEP = e.cluster.node, id.Addresses, id.VTEP
	if n := e.seen.Load().node; n != nil {
		l.NodeUID = n.UID
	}
}

// refuse turns what cannot be done into the runtime's error. What is no refusal
// is an obstacle that time removes: the registry is out of reach, or somebody
// else is at work.
func (e *errand) refuse(err error) *cni.Error {
	var refused *wish.RefusedError
	var known *cni.Error
	switch {
	case errors.As(err, &known):
		return cni.AsError(err)
	case !errors.As(err, &refused):
		return &cni.Error{Code: cni.CodeTryAgain, Msg: fmt.Sprintf("pod %s: %v", e.pod.Key(), err), Err: err}
	}
	return &cni.Error{Code: cni.CodeRefused, Msg: fmt.Sprintf("pod %s: %v", e.pod.Key(), err), Err: err}
}

// lament tells the pod's owner why it cannot start, where that is for him to
// mend. What comes right by itself the kubelet tells.
func (e *errand) lament(cerr *cni.Error) {
	if e.cluster == nil || e.cluster.pods == nil || e.pod.UID == "" {
		return
	}
	var refused *wish.RefusedError
	var used *ipam.InUseError
	var exhausted *ipam.ExhaustedError
	var pool *exhaustedPoolError
	var port *facts.PortError
	event := registry.Event{Pod: e.pod, Warning: true, Message: cerr.Error()}
	if !strings.HasPrefix(event.Message, "pod ") {
		event.Message = "pod " + e.pod.Key() + ": " + event.Message
	}
	switch {
	case errors.As(cerr, &refused):
		event.Reason = refused.Reason
	case errors.As(cerr, &used) && strings.HasPrefix(used.Owner, "pod "+e.pod.Key()+" "):
		return // its own former sandbox, whose DEL is on its way
	case errors.As(cerr, &used):
		event.Reason = wish.AddressInUse
	case errors.As(cerr, &exhausted), errors.As(cerr, &pool):
		event.Reason = "AddressesExhausted"
	case errors.As(cerr, &port):
		event.Reason = "PortInUse"
	default:
		return
	}
	e.cluster.pods.Report(event)
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
