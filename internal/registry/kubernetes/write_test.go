// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/test/apiserver"
)

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func TestWriting(t *testing.T) {
	s := newCluster(t)
	s.Apply(nodeManifest("n1", "192.0.2.1") + podManifest("web-0", "n2"))
	c := synced(t, s, "n1")
	for name, test := range map[string]func(*testing.T, *apiserver.Server, *client){
		"life of a lease": leaseLife, "again and again": leaseTurns, "finalizer": finalizer, "claim race": claimRace, "delete": deletes, "replace": replaces, "addresses are kept": addressesAreKept,
		"one pod": onePod, "mark ready": markReady, "events": reports,
	} {
		t.Run(name, func(t *testing.T) { test(t, s, c) })
	}
}

// leaseLife: what is written is in the Store when the call returns.
func leaseLife(t *testing.T, _ *apiserver.Server, c *client) {
	want := lease("10.42.3.0/24", "n1")
	want.UID, want.Version, want.Created = "ignored", "5", 6
	want.VTEP = cluster.VTEP{MAC: cluster.VTEPMAC("n1"), VNI: 119, Port: 4789}
	if err := c.Create(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	got, there := c.lease(want.Name())
	want.UID, want.Version, want.Created = got.UID, got.Version, got.Created
	if diff := cmp.Diff(want, got, byValue); !there || got.UID == "ignored" || got.Created == 6 || diff != "" {
		t.Errorf("in the Store %v:\n%s", there, diff)
	}
	if err := c.Create(t.Context(), want); !errors.Is(err, registry.ErrExists) {
		t.Errorf("a second create: %v", err)
	}
	want.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	if err := c.Replace(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	got, _ = c.lease(want.Name())
	if got.Version == want.Version {
		t.Error("the version has not changed")
	}
	want.Version = got.Version
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Error(diff)
	}
	if err := c.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if l, there := c.lease(got.Name()); there {
		t.Errorf("after its deletion %+v is in the Store", l)
	}
	if err := c.Delete(t.Context(), got); err != nil {
		t.Errorf("a second delete: %v", err)
	}
}

// leaseTurns: however far the watch is behind, the Store has what this node did
// last, and what somebody else did since.
func leaseTurns(t *testing.T, s *apiserver.Server, c *client) {
	for range 20 {
		l := create(t, c, "10.42.11.0/24")
		if err := c.Delete(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if now, there := c.lease(l.Name()); there {
			t.Fatalf("after its deletion %+v is in the Store", now)
		}
	}
	other := synced(t, s, "n2")
	l := create(t, c, "10.42.11.0/24")
	other.eventually("the lease is there", func(s *registry.State) bool { return s.Leases[l.Name()].UID == l.UID })
	s.MustKubectl("", "delete", "subnetlease", l.Name())
	if err := other.Delete(t.Context(), l); err != nil { // NotFound
		t.Fatal(err)
	}
	if now, there := other.lease(l.Name()); there {
		t.Errorf("%+v is in the Store, although there is none", now)
	}
	next := create(t, c, "10.42.11.0/24")
	other.eventually("the next lease is there", func(s *registry.State) bool { return s.Leases[l.Name()].UID == next.UID })
	if err := c.Delete(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	other.eventually("it is gone", func(s *registry.State) bool { return len(s.Leases[l.Name()].UID) == 0 })
}

// finalizer: a lease that somebody holds on to is there until it is not.
func finalizer(t *testing.T, s *apiserver.Server, c *client) {
	l := create(t, c, "10.42.12.0/24")
	patch := func(finalizers string) {
		t.Helper()
		s.MustKubectl("", "patch", "subnetlease", l.Name(), "--type=merge", "-p", `{"metadata": {"finalizers": `+finalizers+`}}`)
	}
	patch(`["other.dev/audit"]`)
	l.Version = ""
	if err := c.Delete(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if _, there := c.lease(l.Name()); !there {
		t.Error("the lease is not in the Store, although its finalizer keeps it")
	}
	patch("null")
	c.eventually("the lease is gone", func(s *registry.State) bool {
		_, there := s.Leases[l.Name()]
		return !there
	})
}

// claimRace: of many who want one block one gets it.
func claimRace(t *testing.T, _ *apiserver.Server, c *client) {
	const clients = 20
	var won atomic.Int32
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			err := c.Create(t.Context(), lease("10.42.5.0/24", "n"+string(rune('a'+i))))
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, registry.ErrExists):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d clients got the block", won.Load())
	}
}

// create returns a lease as the registry has it.
func create(t *testing.T, c *client, subnet string) cluster.Lease {
	t.Helper()
	if err := c.Create(t.Context(), lease(subnet, "n1")); err != nil {
		t.Fatal(err)
	}
	l, there := c.lease(lease(subnet, "n1").Name())
	if !there {
		t.Fatal("the lease is not in the Store")
	}
	return l
}

func deletes(t *testing.T, _ *apiserver.Server, c *client) {
	exists := func(l cluster.Lease) bool {
		_, err := c.Registry.lease(t.Context(), l.Name())
		return err == nil
	}
	first := create(t, c, "10.42.6.0/24")
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second := create(t, c, "10.42.6.0/24")
	if err := c.Delete(t.Context(), first); !errors.Is(err, registry.ErrConflict) || !exists(second) {
		t.Errorf("with the UID of the previous lease: %v, want a conflict", err)
	}
	first.Version = ""
	if err := c.Delete(t.Context(), first); !errors.Is(err, registry.ErrConflict) || !exists(second) {
		t.Errorf("without a version: %v, want a conflict", err)
	}

	// An older version of what this node holds is this node's nevertheless.
	third := create(t, c, "10.42.7.0/24")
	if err := c.Replace(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	changed := third
	changed.Addresses = nil
	changed.Version = must(c.Registry.lease(t.Context(), third.Name())).Version
	if err := c.Replace(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), third); err != nil || exists(third) {
		t.Errorf("an older version: %v, there %v", err, exists(third))
	}

	// What another node has taken over is that node's.
	fourth := create(t, c, "10.42.8.0/24")
	taken := fourth
	taken.Node, taken.NodeUID = "n2", "uid-of-n2"
	if err := c.Replace(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), fourth); !errors.Is(err, registry.ErrConflict) || !exists(fourth) {
		t.Errorf("another node's: %v, want a conflict", err)
	}
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func replaces(t *testing.T, _ *apiserver.Server, c *client) {
	l := create(t, c, "10.42.9.0/24")
	newer := l
	newer.Addresses = nil
	if err := c.Replace(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := c.Replace(t.Context(), l); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("an old version: %v, want a conflict", err)
	}
	now, _ := c.lease(l.Name())
	other := now
	other.UID = "another"
	if err := c.Replace(t.Context(), other); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("another UID: %v, want a conflict", err)
	}
	if err := c.Delete(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if err := c.Replace(t.Context(), now); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("none: %v, want a conflict", err)
	}
}

func addressesAreKept(t *testing.T, _ *apiserver.Server, c *client) {
	claim := cluster.Claim{
		Namespace: "default", Name: "web-0", Addresses: []netip.Addr{netip.MustParseAddr("10.42.3.7"), netip.MustParseAddr("fd00:42::7")},
		Owner: cluster.Owner{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "s1"},
	}
	if err := c.KeepAddresses(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	c.store.View(func(s *registry.State) {
		got := s.Claims["default/web-0"]
		claim.UID = got.UID
		if diff := cmp.Diff(claim, got, byValue); diff != "" || got.UID == "" {
			t.Error(diff)
		}
	})
	if err := c.KeepAddresses(t.Context(), claim); !errors.Is(err, registry.ErrExists) {
		t.Errorf("a second claim: %v", err)
	}
	claim.Namespace = "nowhere"
	if err := c.KeepAddresses(t.Context(), claim); err == nil || errors.Is(err, registry.ErrExists) {
		t.Errorf("in a namespace that is not there: %v", err)
	}
}
