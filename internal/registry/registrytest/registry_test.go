// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

var start = time.Unix(1000, 0)

func leaseOf(node string) cluster.Lease {
	return cluster.Lease{Subnet: netip.MustParsePrefix("10.42.3.0/24"), Node: node}
}

func current(t *testing.T, r *Registry) cluster.Lease {
	t.Helper()
	l, there := r.Lease("10-42-3-0-24")
	if !there {
		t.Fatal("no lease 10-42-3-0-24")
	}
	return l
}

// The rules by which nodes tell who won.
func TestLeases(t *testing.T) {
	r := New(start)
	c, ctx := r.Client(nil), t.Context()
	if err := c.Create(ctx, leaseOf("a")); err != nil {
		t.Fatal(err)
	}
	first := current(t, r)
	if err := c.Create(ctx, leaseOf("b")); !errors.Is(err, registry.ErrExists) || current(t, r).Node != "a" {
		t.Fatalf("second create: %v, held by %s", err, current(t, r).Node)
	}
	changed := first
	changed.NodeUID = "u"
	if err := c.Replace(ctx, changed); err != nil || current(t, r).NodeUID != "u" || current(t, r).UID != first.UID {
		t.Fatalf("replace: %v, %+v", err, current(t, r))
	}
	if err := c.Replace(ctx, changed); !errors.Is(err, registry.ErrConflict) {
		t.Fatalf("replace of an old version: %v", err)
	}
	other := first
	other.UID = "other"
	if err := c.Delete(ctx, other); !errors.Is(err, registry.ErrConflict) {
		t.Fatalf("delete of another UID: %v", err)
	}
	if err := c.Delete(ctx, first); err != nil || len(r.Leases()) != 0 {
		t.Fatalf("delete: %v, left %v", err, r.Leases())
	}
	if err := c.Delete(ctx, first); err != nil {
		t.Fatalf("repeated delete: %v", err)
	}
	if err := c.Replace(ctx, first); !errors.Is(err, registry.ErrConflict) {
		t.Fatalf("replace of a deleted one: %v", err)
	}
	if err := c.Create(ctx, first); err != nil || current(t, r).UID == first.UID {
		t.Fatalf("create again: %v, %+v", err, current(t, r))
	}
}

func TestFaults(t *testing.T) {
	r, fault := New(start), Lost
	c, ctx := r.Client(func(Call) Fault { return fault }), t.Context()
	if err := c.Create(ctx, leaseOf("a")); !errors.Is(err, ErrFault) || r.Len() != 0 {
		t.Fatalf("lost: %v, %d changes", err, r.Len())
	}
	fault = Unanswered
	if err := c.Create(ctx, leaseOf("a")); !errors.Is(err, ErrFault) || current(t, r).Node != "a" {
		t.Fatalf("unanswered: %v", err)
	}
}

// Two stores see the same changes, each at its time.
func TestFeed(t *testing.T) {
	r := New(start)
	early, late := registry.NewStore(), registry.NewStore()
	lateFeed := r.Connect(late)
	if err := r.Create(leaseOf("a")); err != nil {
		t.Fatal(err)
	}
	earlyFeed := r.Connect(early)
	r.Now = start.Add(time.Second)
	r.Remove(leaseKey("10-42-3-0-24"))
	r.Remove(leaseKey("10-42-3-0-24"))

	expect := func(s *registry.Store, f *Feed, leases, pending int) {
		t.Helper()
		s.View(func(st *registry.State) {
			if len(st.Leases) != leases || f.Pending() != pending || f.Position() != r.Len()-pending || !st.Synced {
				t.Errorf("%d leases, %d changes pending, want %d and %d; synced: %v", len(st.Leases), f.Pending(), leases, pending, st.Synced)
			}
		})
	}
	expect(late, lateFeed, 0, 2)
	expect(early, earlyFeed, 1, 1)
	lateFeed.DeliverUntil(start)
	expect(late, lateFeed, 1, 1)
	lateFeed.Deliver(5)
	expect(late, lateFeed, 0, 0)
	earlyFeed.DeliverUntil(r.Now)
	expect(early, earlyFeed, 0, 0)
}
