// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/report"
)

// empty returns the agent of node1 in a cluster without pools, whose first one
// is created with this outcome, and how often that was tried.
func empty(t *testing.T, outcome *error) (w *world, tried *int, told *telling) {
	t.Helper()
	w, tried, told = pods(t), new(int), &telling{}
	for _, l := range w.objects.Leases() {
		w.objects.Remove(registry.Key{Kind: registry.SubnetLease, Name: l.Name()})
	}
	for _, name := range []string{"default", "blue"} {
		w.objects.Remove(registry.Key{Kind: registry.IPPool, Name: name})
	}
	w.inputs.served = nil
	w.network.Store(&network{})
	w.see()
	w.cluster.pods = told
	w.cluster.createPool = func(context.Context) error {
		*tried++
		return *outcome
	}
	return w, tried, told
}

// A first pool that the API server refuses is everybody's business: nobody has
// an address without.
func TestFirstPoolThatIsRefused(t *testing.T) {
	outcome := errors.New("create IPPool default: admission webhook says no")
	w, tried, told := empty(t, &outcome)
	now := time.Unix(3000, 0)
	for i := range 10 {
		w.beginPools(t.Context(), now.Add(time.Duration(i)*500*time.Millisecond))
	}
	if *tried != 3 { // after 0, 1 and 3 seconds
		t.Errorf("tried %d times, want 3", *tried)
	}
	if len(told.events) != 1 || told.events[0].Reason != "InitialPoolNotCreated" || told.events[0].Pod.Name != "" || !strings.Contains(told.events[0].Message, "webhook says no") {
		t.Errorf("the Node's users were told %+v, want it once", told.events)
	}
	if why := w.whyNot(); !strings.Contains(why, "node node1 has no pod subnet yet: there is no IPPool: create the first IPPool") || !strings.Contains(why, "webhook says no") {
		t.Errorf("ADD answers %q", why)
	}
	line := poolStatus(snapshotOf(w.cluster.objects), w.poolless.now())
	if line.State != report.Bad || !strings.Contains(line.Detail, "webhook says no") {
		t.Errorf("status says %+v", line)
	}

	// Somebody else creates one: that is not the reason any more, at once.
	w.objects.Put(registry.Key{Kind: registry.IPPool, Name: "other"},
		cluster.Pool{Name: "other", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.44.0.0/16"), BlockBits: 24}}})
	w.see()
	w.beginPools(t.Context(), now.Add(5*time.Second))
	if err := w.poolless.now(); err != nil || *tried != 3 {
		t.Errorf("with a pool: %v, tried %d times", err, *tried)
	}
	if line := poolStatus(snapshotOf(w.cluster.objects), w.poolless.now()); line.State != report.Good {
		t.Errorf("with a pool status says %+v", line)
	}
}

// Losing contact says nothing of the pool.
func TestFirstPoolWithoutContact(t *testing.T) {
	outcome := errors.New("refused")
	w, tried, told := empty(t, &outcome)
	w.beginPools(t.Context(), time.Unix(3000, 0))
	w.cluster.objects.Unreachable(errors.New("away"), time.Unix(3001, 0))
	w.beginPools(t.Context(), time.Unix(3100, 0))
	if w.poolless.now() == nil || *tried != 1 {
		t.Errorf("without contact: %v, tried %d times", w.poolless.now(), *tried)
	}
	w.cluster.objects.Synced(time.Unix(3101, 0))
	outcome = registry.ErrExists // another node was faster
	w.beginPools(t.Context(), time.Unix(3102, 0))
	if w.poolless.now() != nil || *tried != 2 || len(told.events) != 1 {
		t.Errorf("another node's pool: %v, tried %d times, told %v", w.poolless.now(), *tried, told.events)
	}
}
