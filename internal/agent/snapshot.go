// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/metrics"
	"weft.dev/weft/internal/registry"
)

// snapshot is the agent's state for those who measure.
func (a *Agent) snapshot() metrics.Snapshot {
	now := time.Now()
	s := metrics.Snapshot{Ready: a.ready() == nil, Reaping: a.engine.Reaper.Waiting()}
	if st, err := os.Stat(a.store.Path()); err == nil {
		s.JournalBytes = st.Size()
	}
	for _, k := range a.fabric.Status() {
		kind := metrics.Kind{
			Kind: k.Kind, Desired: k.Desired, Pending: k.Pending, Failing: len(k.Failing),
			InSync: !k.InSyncSince.IsZero(), ReadTook: k.ResyncTook,
		}
		if !k.BehindSince.IsZero() {
			kind.Lag = now.Sub(k.BehindSince)
		}
		s.Kinds = append(s.Kinds, kind)
	}
	a.collected.mu.Lock()
	for _, action := range slices.Sorted(maps.Keys(a.collected.count)) {
		s.Collected = append(s.Collected, metrics.Collected{Action: action, Count: a.collected.count[action]})
	}
	a.collected.mu.Unlock()
	_ = a.store.View(context.Background(), func(f *facts.Facts) error {
		s.JournalRecords = f.Len()
		s.Attachments = phases(f)
		s.Pools = a.use(f, now)
		return nil
	})
	if a.cluster != nil {
		a.measureCluster(&s)
	}
	return s
}

func phases(f *facts.Facts) (list []metrics.Attachments) {
	count := map[facts.Phase]int{facts.Intent: 0, facts.Complete: 0, facts.Releasing: 0}
	for rec := range f.Each {
		if rec.Kind == facts.Veth {
			count[rec.Phase]++
		}
	}
	for _, p := range slices.Sorted(maps.Keys(count)) {
		list = append(list, metrics.Attachments{Phase: p.String(), Count: count[p]})
	}
	return list
}

// use sums up how full this node's blocks are, by pool and family.
func (a *Agent) use(f *facts.Facts, now time.Time) []metrics.Pool {
	type key struct{ pool, family string }
	names := [2]string{"ipv4", "ipv6"}
	sums := map[key]metrics.Pool{}
	n, usage := a.network.Load(), f.Usage(facts.Veth, "")
	served, kept := a.seen.Load().served, *a.kept.Load()
	for _, set := range n.Pool.Sets {
		for _, r := range set {
			k := key{poolOfBlock(served, r), names[family(r.Subnet.Addr())]}
			st := usage.Stats(ipam.Set{r}, now.UnixNano(), int64(n.Cooldown))
			sum := sums[k]
			sum.Pool, sum.Family = k.pool, k.family
			if sum.Size += st.Total; sum.Size < st.Total {
				sum.Size = st.Total
			}
			sum.Used += uint64(st.Used)
			sum.Kept += keptFree(usage, r, kept)
			sum.Cooling += uint64(st.Cooling)
			sum.Foreign += uint64(st.Foreign)
			sums[k] = sum
		}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b metrics.Pool) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Family, b.Family))
	})
}

// poolOfBlock returns the name of the pool that a block is from; "": it is a PodCIDR.
func poolOfBlock(served []cluster.Lease, block ipam.Range) string {
	if i := slices.IndexFunc(served, func(l cluster.Lease) bool { return l.Subnet == block.Subnet }); i >= 0 {
		return served[i].Pool
	}
	return ""
}

func (a *Agent) measureCluster(s *metrics.Snapshot) {
	s.Registry.Configured = true
	a.cluster.objects.View(func(state *registry.State) {
		s.Registry.Contact, s.Registry.Since = state.Err == nil && state.Synced, state.Since
		s.Registry.Rejected = len(state.Rejected)
	})
	s.Leases.Own = len(a.cluster.keeper.Status().Held)
	for _, r := range a.fabric.Reach() {
		switch {
		case r.Subnet.IsSingleIP(): // the lease of an address is no block
		case r.Way == topology.Unreachable:
			s.Leases.Rejected++
		case r.Node != a.cluster.node:
			s.Leases.Others++
		}
	}
}
