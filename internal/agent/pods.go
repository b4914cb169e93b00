// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	key    attach.Key // of the attachment
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
	current := func() engine.Network { return e.Agent.network.Load().For(cfg.Name, cfg.MTU) }
	if e.cluster == nil {
		e.pod = cluster.Pod{Namespace: cfg.Args.Pod.Namespace, Name: cfg.Args.Pod.Name, UID: cfg.Args.Pod.UID}
		e.awaitFormer(cfg.Want, cfg.Ports)
		return current(), nil
	}
	if e.verb == cni.Status && e.cluster.pods != nil {
		// A node whose addresses are all in use is not broken. The kubelet would
		// report it as NotReady, and the pods that run well would be evicted.
		n := current()
		n.Pool = ipam.Pool{}
		return n, nil
	}
	pod, cerr := e.find(cfg.Args.Pod)
	if cerr != nil {
		return engine.Network{}, cerr
	}
	e.pod = pod
	e.course.Mark(timeline.PodKnown)
	w, err := wish.Parse(pod.Annotations, e.cluster.namespace(pod.Namespace).Annotations)
	if err == nil {
		err = reconcileWishes(cfg, w)
	}
	if err == nil {
		err = e.decide(w, cfg)
	}
	n := current() // not before: much may change while something is waited for
	if err == nil {
		err = narrow(&n, w)
	}
	if err == nil {
		err = e.choice(&n)
	}
	if err != nil {
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
func reconcileWishes(cfg *cni.Config, w wish.Wish) error {
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
	return nil
}

// narrow gives the network the MTU that the pod asks for.
func narrow(n *engine.Network, w wish.Wish) error {
	if w.MTU == 0 {
		return nil
	}
	if w.MTU > n.MTU {
		return &wish.RefusedError{Reason: wish.InvalidAnnotation, Msg: fmt.Sprintf(
			"%s asks for %d bytes, but this node's network takes %d at most; ask for less", wish.MTU, w.MTU, n.MTU)}
	}
	n.MTU = w.MTU
	return nil
}

// decide resolves the wish, and again if the pod's former sandbox had what it is
// to get: its going may have changed more than that.
func (e *errand) decide(w wish.Wish, cfg *cni.Config) error {
	asked := cfg.Want
	resolve := func() error {
		err := e.resolve(w)
		if cfg.Want = asked; len(asked) == 0 {
			cfg.Want = e.answer.Addresses
		}
		return err
	}
	if err := resolve(); err != nil || !e.awaitFormer(cfg.Want, cfg.Ports) {
		return err
	}
	return resolve()
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
			if !slices.ContainsFunc(seen.pools, func(p cluster.Pool) bool { return p.Name == w.Pool }) {
				v.PoolRefused = refusedPool(s, w.Pool)
			}
			e.answer, err = wish.Resolve(w, v, func(l cluster.Lease) uint64 { return free[l.Subnet] })
		})
		if err != nil || e.answer.Demand == "" {
			return err
		}
		if !time.Now().Before(deadline) {
			return e.exhaustedPool(e.answer.Demand, free)
		}
		e.cluster.keeper.Demand(e.answer.Demand)
		e.wake()
		pause(e.ctx, breath)
		if err := e.ctx.Err(); err != nil {
			return err
		}
	}
}

// refusedPool says why a pool is not in use; "" if nothing is wrong with it, or
// there is none.
func refusedPool(s *registry.State, name string) string {
	if name == "" {
		return ""
	}
	object := string(registry.IPPool) + " " + name
	if reason := s.Rejected[object]; reason != "" {
		return reason
	}
	_, rejected := cluster.AcceptPools(slices.Collect(maps.Values(s.Pools)), maps.Values(s.Leases))
	for _, r := range rejected {
		if r.Object == object {
			return r.Reason
		}
	}
	return ""
}

// free returns how many addresses each block of the pool that is asked for has
// left. It is found out beforehand: whoever looks at the registry must not wait
// for the journal.
func (e *errand) free(w wish.Wish, seen *inputs) (map[netip.Prefix]uint64, error) {
	if w.Pool == "" {
		return nil, nil
	}
	free, kept := map[netip.Prefix]uint64{}, *e.kept.Load()
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
			left := usage.Stats(ipam.Set{r}, time.Now().UnixNano(), cooldown).Free
			free[l.Subnet] = left - min(left, keptFree(usage, r, kept))
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
