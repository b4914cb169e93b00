// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/registrytest"
)

func onePool(reserved ...string) cluster.Pool {
	p := cluster.Pool{Name: "default", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.42.0.0/27"), BlockBits: 29}}}
	for _, r := range reserved {
		p.Reserved = append(p.Reserved, netip.MustParsePrefix(r))
	}
	return p
}

func subnets(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func (n *node) expectServed(t *testing.T, count int) []netip.Prefix {
	t.Helper()
	served := n.ipam.served()
	if len(served) != count || !slices.Equal(served, n.world.heldBy(n.name)) {
		t.Fatalf("%s serves %v and holds %v, want %d blocks; %+v", n.name, served, n.world.heldBy(n.name), count, n.keeper.Status())
	}
	return served
}

func (n *node) expectWaiting(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(n.keeper.Status().Waiting, "; "); got != want {
		t.Fatalf("%s waits: %q, want %q", n.name, got, want)
	}
}

// Four nodes with views from before there were any leases want the four blocks
// of a pool: everybody gets one, and losers have it in the same pass. A fifth
// learns that there is none.
func TestLosersTakeAnotherBlock(t *testing.T) {
	w := newWorld(onePool())
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.add(name)
	}
	conflicts := 0
	for _, n := range w.nodes {
		before := w.registry.Len()
		n.fault = func(c registrytest.Call) registrytest.Fault {
			if _, there := w.registry.Lease(c.Lease.Name()); there {
				conflicts++
			}
			return registrytest.None
		}
		n.feed.Deliver(0)
		n.keeper.Step(t.Context(), w.registry.Now)
		if n.name == "e" {
			break
		}
		n.expectServed(t, 1)
		n.expectWaiting(t, "")
		if w.registry.Len() != before+1 {
			t.Errorf("%s wrote %d times", n.name, w.registry.Len()-before)
		}
	}
	if conflicts < 4 {
		t.Errorf("%d lost races", conflicts)
	}
	w.nodes[4].expectWaiting(t, "Node e has no IPv4 block, and none is free: IPPool default: of 4 blocks /29 in 10.42.0.0/27, 4 are leased and 0 reserved")
}

func TestReservedBlockIsNeverLeased(t *testing.T) {
	w := newWorld(onePool("10.42.0.0/28", "10.42.0.24/29"))
	a, b := w.add("a"), w.add("b")
	a.sync(t)
	b.sync(t)
	if got := a.expectServed(t, 1); !slices.Equal(got, subnets("10.42.0.16/29")) {
		t.Errorf("a serves %v", got)
	}
	b.expectServed(t, 0)
	b.expectWaiting(t, "Node b has no IPv4 block, and none is free: IPPool default: of 4 blocks /29 in 10.42.0.0/27, 1 are leased and 3 reserved")
}

// A node address that changes in one family only reaches every lease, once.
func TestOneFamilyChanges(t *testing.T) {
	w := newWorld(smallPool())
	n := w.add("a")
	v4, v6 := netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("2001:db8::1")
	n.identity.Addresses = []netip.Addr{v4, v6}
	n.sync(t)
	for _, next := range []netip.Addr{netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::3")} {
		n.identity.Addresses = []netip.Addr{v4, next}
		before := w.registry.Len()
		n.sync(t)
		n.keeper.Step(t.Context(), w.registry.Now) // the view does not show it yet
		n.sync(t)
		for _, l := range w.registry.Leases() {
			if !slices.Equal(l.Addresses, []netip.Addr{v4, next}) {
				t.Errorf("%s says %v, want %s", l.Name(), l.Addresses, next)
			}
		}
		if writes := w.registry.Len() - before; writes != 2 {
			t.Errorf("%d writes for two leases", writes)
		}
	}
}

// Before the first complete view nothing is done, and IPAM goes on as it was.
func TestWaitsForTheFirstView(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.ipam.blocks = map[netip.Prefix]*fakeBlock{subnets("10.42.0.8/29")[0]: {served: true, pods: 1}}
	n.store = registry.NewStore()
	n.keeper = New(Config{Node: "a"}, n.store, w.registry.Client(nil), n.ipam,
		func() Identity { return n.identity }, func() map[string]string { return nil })
	n.store.Unreachable(errDisk, w.registry.Now)
	next := n.keeper.Step(t.Context(), w.registry.Now)
	if n.ipam.serves != 0 || len(w.registry.Leases()) != 0 || next != w.registry.Now.Add(rest) {
		t.Errorf("serve was called %d times, leases %v, next in %s", n.ipam.serves, w.registry.Leases(), next.Sub(w.registry.Now))
	}
	n.expectWaiting(t, "the registry has not told its state yet")
	if s := n.keeper.Status(); !errors.Is(s.Err, errDisk) || s.ErrAt != w.registry.Now || s.Since != w.registry.Now {
		t.Errorf("status %+v", s)
	}
}

// A node that loses the registry keeps what it has, with its pods, takes
// nothing new and says so; and goes on when it has contact again.
func TestUnreachable(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.sync(t)
	first := n.expectServed(t, 1)[0]
	n.store.Unreachable(errDisk, w.registry.Now)
	n.ipam.setPods(first, blockSize)
	w.pass(24 * time.Hour)
	n.keeper.Step(t.Context(), w.registry.Now)
	n.expectServed(t, 1)
	n.expectWaiting(t, "Node a has 0 free IPv4 addresses left, and the registry takes no claims now")
	since := n.keeper.Status().Since
	n.store.Synced(w.registry.Now)
	w.pass(time.Second)
	n.keeper.Step(t.Context(), w.registry.Now)
	n.expectServed(t, 2)
	if s := n.keeper.Status(); s.Err != nil || !errors.Is(s.LastErr, errDisk) || !s.Since.After(since) {
		t.Errorf("status %+v", s)
	}
}

// The answer to a claim is lost. The node neither serves the block nor claims
// another one; when the registry shows it, it is served.
func TestClaimWithoutAnswer(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.fault = func(registrytest.Call) registrytest.Fault { return registrytest.Unanswered }
	next := n.keeper.Step(t.Context(), w.registry.Now)
	if len(n.ipam.served()) != 0 || len(w.heldBy("a")) != 1 || next != w.registry.Now.Add(time.Second) {
		t.Fatalf("serves %v, holds %v, next in %s", n.ipam.served(), w.heldBy("a"), next.Sub(w.registry.Now))
	}
	n.fault = nil
	w.pass(time.Second)
	n.keeper.Step(t.Context(), w.registry.Now) // repeats the claim, is refused, and does not know by whom
	if len(n.ipam.served()) != 0 || len(w.heldBy("a")) != 1 {
		t.Fatalf("serves %v, holds %v", n.ipam.served(), w.heldBy("a"))
	}
	n.expectWaiting(t, "the registry does not show yet whose block "+w.heldBy("a")[0].String()+" is")
	n.sync(t)
	n.expectServed(t, 1)
	n.expectWaiting(t, "")
}

// If the view never shows whose the block is, another one is claimed in the end.
func TestClaimThatNeverShows(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.fault = func(registrytest.Call) registrytest.Fault { return registrytest.Unanswered }
	n.keeper.Step(t.Context(), w.registry.Now)
	n.fault = nil
	for _, d := range []time.Duration{time.Second, patience - time.Second, time.Second} {
		if len(w.heldBy("a")) != 1 {
			t.Fatalf("holds %v", w.heldBy("a"))
		}
		w.pass(d)
		n.keeper.Step(t.Context(), w.registry.Now)
	}
	if len(n.ipam.served()) != 1 || len(w.heldBy("a")) != 2 {
		t.Fatalf("serves %v, holds %v", n.ipam.served(), w.heldBy("a"))
	}
}

// A claim that was not even tried leaves nothing in doubt: the node waits for no
// answer, says why, and tries again.
func TestClaimThatIsNotTried(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.fault = func(registrytest.Call) registrytest.Fault { return registrytest.Untried }
	next := n.keeper.Step(t.Context(), w.registry.Now)
	if len(n.ipam.served()) != 0 || len(w.heldBy("a")) != 0 || next != w.registry.Now.Add(time.Second) {
		t.Fatalf("serves %v, holds %v, next in %s", n.ipam.served(), w.heldBy("a"), next.Sub(w.registry.Now))
	}
	if s := n.keeper.Status(); len(s.Waiting) != 1 || !strings.Contains(s.Waiting[0], "is not claimed: nothing was written: the registry does not answer") || s.Err == nil {
		t.Errorf("status %+v", s)
	}
	n.fault = nil
	w.pass(time.Second)
	n.keeper.Step(t.Context(), w.registry.Now)
	n.expectServed(t, 1)
	n.expectWaiting(t, "")
}

// A registry that fails is asked after 1, 2, 4 … 60 s, however often the store
// changes meanwhile.
func TestBackoff(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	calls := 0
	n.fault = func(registrytest.Call) registrytest.Fault { calls++; return registrytest.Lost }
	for i, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		next := n.keeper.Step(t.Context(), w.registry.Now)
		if got := next.Sub(w.registry.Now); got != time.Duration(want)*time.Second || calls != i+1 {
			t.Fatalf("failure %d: next in %s after %d calls, want %d s", i+1, got, calls, want)
		}
		for range 3 {
			w.registry.Put(registry.Key{Kind: registry.Node, Name: "b"}, cluster.Node{Name: "b"})
			if early := n.sync(t); early.After(next) || calls != i+1 {
				t.Fatalf("woken up it made %d calls, and waits until %s", calls, early)
			}
		}
		w.pass(next.Sub(w.registry.Now))
	}
	n.fault = nil
	n.sync(t)
	n.expectServed(t, 1)
	if s := n.keeper.Status(); s.Err != nil || !errors.Is(s.LastErr, registrytest.ErrFault) || s.ErrAt.IsZero() {
		t.Errorf("status %+v", s)
	}
}

// Somebody deletes leases: the block with pods is claimed again at once, unless
// another node was quicker.
func TestLeaseDeletedFromOutside(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.sync(t)
	block := n.expectServed(t, 1)[0]
	n.ipam.setPods(block, 2)
	n.sync(t)
	w.registry.Remove(leaseKey(block))
	n.sync(t)
	if got := n.expectServed(t, 1); got[0] != block {
		t.Fatalf("serves %v instead of %s", got, block)
	}
	n.sync(t)
	w.registry.Remove(leaseKey(block))
	w.registry.Put(leaseKey(block), cluster.Lease{Subnet: block, Node: "b"})
	n.sync(t)
	if got := n.expectServed(t, 1); got[0] == block || n.ipam.blocks[block].pods != 2 {
		t.Fatalf("serves %v", got)
	}
	n.expectWaiting(t, "block "+block.String()+" was lost to b; 2 of its addresses are in use, kept for pods or cooling down")
}

// IPAM fails: nothing is deleted or claimed on its account, and it is told
// again.
func TestIPAMFails(t *testing.T) {
	n, _ := extra(t)
	for _, verb := range []string{"blocks", "serve"} {
		n.ipam.before = func(v string) error {
			if v == verb {
				return errDisk
			}
			return nil
		}
		n.sync(t)
		if s := n.keeper.Status(); !errors.Is(s.Err, errDisk) || len(n.world.heldBy("a")) != 2 {
			t.Fatalf("%s fails: holds %v, %+v", verb, n.world.heldBy("a"), s)
		}
		n.world.pass(time.Minute)
	}
	n.ipam.before = nil
	n.sync(t)
	n.expectServed(t, 1)
}

// A rejected lease is replaced by another block.
func TestRejected(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.sync(t)
	bad := n.expectServed(t, 1)[0]
	n.rejected = map[string]string{cluster.LeaseName(bad): "overlaps"}
	n.sync(t)
	if got := n.ipam.served(); len(got) != 1 || got[0] == bad {
		t.Fatalf("serves %v", got)
	}
	w.pass(10 * time.Minute)
	n.sync(t)
	if slices.Contains(n.expectServed(t, 1), bad) {
		t.Fatalf("still holds %s", bad)
	}
}

// Somebody else changes this node's lease: the correction is lost once, and
// repeated when the view shows what it was lost to, not before.
func TestConflict(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.sync(t)
	n.sync(t)
	l, _ := w.registry.Lease(cluster.LeaseName(n.expectServed(t, 1)[0]))
	l.NodeUID, l.Version = "foreign", ""
	w.registry.Put(leaseKey(l.Subnet), l)
	n.identity.Addresses = []netip.Addr{netip.MustParseAddr("198.18.1.99")}
	calls := 0
	n.fault = func(registrytest.Call) registrytest.Fault { calls++; return registrytest.None }
	for range 3 {
		n.keeper.Step(t.Context(), w.registry.Now)
	}
	if s := n.keeper.Status(); calls != 1 || s.Err != nil {
		t.Errorf("%d calls before the view shows the change; %+v", calls, s)
	}
	n.sync(t)
	if l, _ = w.registry.Lease(l.Name()); calls != 2 || l.NodeUID != "1" || !slices.Equal(l.Addresses, n.identity.Addresses) {
		t.Errorf("%d calls, lease %+v", calls, l)
	}
}

// IPAM has done what it reported as failed: it is told again, even if what it
// was told before is wanted again.
func TestIPAMFailsAfterHavingDoneIt(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.sync(t)
	n.sync(t)
	block := n.expectServed(t, 1)[0]
	n.ipam.setPods(block, 1)
	n.rejected = map[string]string{cluster.LeaseName(block): "overlaps"}
	n.ipam.before = func(verb string) error {
		if verb == "serve" {
			n.ipam.blocks[block].served = false
			return errDisk
		}
		return nil
	}
	n.sync(t)
	n.rejected, n.ipam.before = nil, nil
	w.pass(time.Second)
	n.sync(t)
	n.expectServed(t, 1)
	delete(n.ipam.blocks, block) // and if it forgets
	n.sync(t)
	n.expectServed(t, 1)
}

// What fails is tried once in a pass, whatever else succeeds in it.
func TestOneFamilyFails(t *testing.T) {
	w := newWorld(smallPool())
	n := w.add("a")
	calls := 0
	n.fault = func(c registrytest.Call) registrytest.Fault {
		if c.Lease.Subnet.Addr().Is4() {
			return registrytest.None
		}
		calls++
		return registrytest.Lost
	}
	n.sync(t)
	n.expectServed(t, 1)
	n.expectWaiting(t, "Node a has no IPv6 block, and the registry takes no claims now")
	if s := n.keeper.Status(); calls != 1 || !errors.Is(s.Err, registrytest.ErrFault) {
		t.Errorf("%d calls, %+v", calls, s)
	}
}
