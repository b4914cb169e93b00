// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

func demandWorld() (*world, *node) {
	w := newWorld(onePool())
	w.registry.Put(registry.Key{Kind: registry.IPPool, Name: "public"}, cluster.Pool{
		Name: "public", OnRequest: true,
		Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.99.0.0/26"), BlockBits: 29}},
	})
	return w, w.add("a")
}

func inPublic(list []netip.Prefix) (n int) {
	for _, s := range list {
		if netip.MustParsePrefix("10.99.0.0/26").Overlaps(s) {
			n++
		}
	}
	return n
}

// A pod asks for a pool: the next Step leases a block of it, and one only. When
// nobody has asked for a while and no pod has an address of it, it goes back.
func TestDemand(t *testing.T) {
	w, n := demandWorld()
	n.sync(t)
	if got := inPublic(n.ipam.served()); got != 0 {
		t.Fatalf("%d blocks of the pool before anybody asks", got)
	}
	var asking sync.WaitGroup
	for range 4 { // each from a goroutine of its own, as ADDs are
		asking.Go(func() { n.keeper.Demand("public") })
	}
	asking.Wait()
	for range 3 {
		n.sync(t)
		if got := inPublic(n.ipam.served()); got != 1 {
			t.Fatalf("%d blocks of the pool, want one: %v", got, n.ipam.served())
		}
	}
	w.pass(10*time.Minute + time.Second)
	n.sync(t)
	if got := inPublic(w.heldBy("a")); got != 0 || len(w.heldBy("a")) != 1 {
		t.Fatalf("holds %v after ten idle minutes", w.heldBy("a"))
	}
}

// What cannot be met is said as long as it counts.
func TestDemandThatCannotBeMet(t *testing.T) {
	w, n := demandWorld()
	n.keeper.Demand("nowhere")
	n.sync(t)
	n.expectWaiting(t, "a pod asks for IPPool nowhere, and there is none of that name in use")
	w.pass(memory - time.Nanosecond)
	n.sync(t)
	if !strings.Contains(strings.Join(n.keeper.Status().Waiting, "\n"), "nowhere") {
		t.Error("forgotten too early")
	}
	w.pass(time.Nanosecond)
	n.sync(t)
	n.expectWaiting(t, "")
}

// A pod's lease is corrected, and neither served nor given back, whatever
// IPAM lists.
func TestLeasesOfPods(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	mine, other := netip.MustParsePrefix("10.42.0.62/32"), netip.MustParsePrefix("10.42.0.61/32")
	w.registry.Put(leaseKey(mine), cluster.Lease{Subnet: mine, Node: "a", Pool: "default", Pod: "prod/db-0"})
	w.registry.Put(leaseKey(other), cluster.Lease{Subnet: other, Node: "b", Pool: "default", Pod: "prod/db-1"})
	n.sync(t)
	n.ipam.blocks[mine] = &fakeBlock{idleSince: 1} // as an IPAM might list it
	for range 3 {
		w.pass(time.Hour)
		n.sync(t)
	}
	l, there := w.registry.Lease(cluster.LeaseName(mine))
	if !there || l.Pod != "prod/db-0" || l.Pool != "default" || l.NodeUID != "1" || len(l.Addresses) != 1 {
		t.Errorf("lease %+v, %t", l, there)
	}
	if l, _ := w.registry.Lease(cluster.LeaseName(other)); l.NodeUID != "" {
		t.Errorf("another node's lease was changed: %+v", l)
	}
	for _, held := range n.keeper.Status().Held {
		if held.Pod != "" {
			t.Errorf("serves %+v", held)
		}
	}
	n.expectWaiting(t, "")
	w.registry.Remove(leaseKey(mine))
	n.sync(t)
	if _, there := w.registry.Lease(cluster.LeaseName(mine)); there {
		t.Error("claimed a pod's lease again")
	}
}
