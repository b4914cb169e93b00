// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry/registrytest"
)

// extra gives a node a second block that is idle for longer than necessary.
func extra(t *testing.T) (n *node, idle netip.Prefix) {
	t.Helper()
	n = newWorld(onePool()).add("a")
	n.sync(t)
	n.ipam.setPods(n.expectServed(t, 1)[0], 4)
	n.sync(t)
	for subnet, b := range n.ipam.blocks {
		if b.pods == 0 {
			idle = subnet
		}
	}
	for subnet, b := range n.ipam.blocks {
		if subnet != idle {
			n.ipam.setPods(subnet, b.pods-3)
		}
	}
	n.expectServed(t, 2)
	n.world.pass(10*time.Minute - time.Second)
	n.sync(t)
	n.expectServed(t, 2)
	n.world.pass(time.Second)
	return n, idle
}

// A lease is deleted only when IPAM gives no addresses from the block; if a pod
// is quicker the node keeps it.
func TestGiveBack(t *testing.T) {
	n, idle := extra(t)
	n.ipam.before = func(verb string) error {
		if b := n.ipam.blocks[idle]; verb == "serve" && b != nil && b.pods == 0 {
			n.ipam.setPods(idle, 1)
		}
		return nil
	}
	n.sync(t)
	n.expectServed(t, 2)
	n.ipam.before = nil
	n.ipam.setPods(idle, 0)
	n.world.pass(10 * time.Minute)
	n.fault = func(c registrytest.Call) registrytest.Fault {
		if n.ipam.blocks[idle] != nil {
			t.Error("the lease is deleted while IPAM has the block")
		}
		return registrytest.None
	}
	n.sync(t)
	n.expectServed(t, 1)
	// The view shows the lease for another while. It is not this node's, however
	// much the node needs a block.
	n.ipam.setPods(n.ipam.served()[0], blockSize)
	n.fault = nil
	n.keeper.Step(t.Context(), n.world.registry.Now)
	if slices.Contains(n.expectServed(t, 2), idle) {
		t.Errorf("serves %s, whose lease it has deleted", idle)
	}
}

// A correction without an answer, then the lease is deleted, then the view
// shows the correction: the lease is none of this node's nevertheless.
func TestGiveBackAfterCorrection(t *testing.T) {
	n, idle := extra(t)
	n.world.pass(-time.Second)
	n.identity.Addresses = []netip.Addr{netip.MustParseAddr("198.18.1.99")}
	n.fault = func(registrytest.Call) registrytest.Fault { return registrytest.Unanswered }
	n.sync(t)
	n.fault = nil
	n.world.pass(time.Second)
	if n.keeper.Step(t.Context(), n.world.registry.Now); slices.Contains(n.expectServed(t, 1), idle) {
		t.Fatalf("still serves %s", idle)
	}
	n.ipam.setPods(n.ipam.served()[0], blockSize)
	for n.feed.Pending() > 0 {
		n.feed.Deliver(1)
		if n.keeper.Step(t.Context(), n.world.registry.Now); slices.Contains(n.ipam.served(), idle) && !slices.Contains(n.world.heldBy("a"), idle) {
			t.Fatalf("serves %s, whose lease it has deleted", idle)
		}
	}
	n.expectServed(t, 2)
}

// An answer that never comes leaves no deletion behind: it is repeated even if
// the view does not change, and an unrelated block can be claimed meanwhile.
func TestDeletionIsRepeated(t *testing.T) {
	n, idle := extra(t)
	n.fault = func(c registrytest.Call) registrytest.Fault {
		if c.Verb == "delete" {
			return registrytest.Lost
		}
		return registrytest.None
	}
	n.sync(t)
	n.world.pass(time.Second)
	n.ipam.setPods(n.ipam.served()[0], blockSize)
	n.sync(t)
	n.world.pass(patience)
	n.sync(t)
	if served := n.ipam.served(); len(served) != 2 || slices.Contains(served, idle) {
		t.Fatalf("serves %v; %s is a lease that it may have deleted", served, idle)
	}
	n.fault = nil
	n.world.pass(patience)
	n.sync(t)
	if slices.Contains(n.world.heldBy("a"), idle) {
		t.Errorf("the lease of %s is still there", idle)
	}
	n.sync(t)
	n.expectServed(t, 2)
}

// What is released is remembered in order, and not without limit.
func TestReleasedAreRemembered(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.sync(t)
	var want []netip.Prefix
	for i := range maxReleased + 10 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 43, byte(i >> 5), byte(i << 3)}), 29)
		w.registry.Put(leaseKey(subnet), cluster.Lease{Subnet: subnet, Node: "b"})
		n.sync(t)
		w.registry.Remove(leaseKey(subnet))
		n.sync(t)
		want = append(want, subnet)
	}
	want = want[10:]
	if !slices.Equal(n.keeper.view.released, want) {
		t.Fatalf("%d blocks remembered: %v", len(n.keeper.view.released), n.keeper.view.released)
	}
	w.registry.Put(leaseKey(want[5]), cluster.Lease{Subnet: want[5], Node: "b"})
	n.sync(t)
	if slices.Contains(n.keeper.view.released, want[5]) {
		t.Errorf("%s is leased and counts as released", want[5])
	}
}

// The answer to a deletion is lost: the block is not served again, even if the
// lease is still there, and the deletion is repeated until it is not.
func TestGiveBackWithoutAnswer(t *testing.T) {
	n, idle := extra(t)
	n.fault = func(registrytest.Call) registrytest.Fault { return registrytest.Lost }
	n.sync(t)
	for range 5 {
		if slices.Contains(n.ipam.served(), idle) || len(n.world.heldBy("a")) != 2 {
			t.Fatalf("serves %v, holds %v", n.ipam.served(), n.world.heldBy("a"))
		}
		n.world.pass(time.Minute)
		n.sync(t)
	}
	n.fault = nil
	n.world.pass(time.Minute)
	n.sync(t)
	n.expectServed(t, 1)
}

// Blocks that a node had before come first, but not those that it gave back.
func TestPrevious(t *testing.T) {
	n, idle := extra(t)
	n.keeper.previous = []netip.Prefix{idle}
	n.sync(t)
	n.expectServed(t, 1)
	n.ipam.setPods(n.ipam.served()[0], blockSize)
	n.sync(t)
	if slices.Contains(n.expectServed(t, 2), idle) {
		t.Errorf("%s was given back and is the next one claimed", idle)
	}
	n.start()
	n.sync(t)
	n.expectServed(t, 2)
}

// A node that has just started does not know who used its blocks before.
func TestRestartKeepsIdleBlocks(t *testing.T) {
	n, _ := extra(t)
	n.start()
	n.sync(t)
	n.expectServed(t, 2)
	n.world.pass(10 * time.Minute)
	n.sync(t)
	n.expectServed(t, 1)
}
