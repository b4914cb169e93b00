// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/test/apiserver"
)

// lateClient is a Registry whose Store has everything that there was when it
// began, and is told nothing more of claims until its watch comes along.
type lateClient struct {
	*client
	watch func()
}

func lateWatch(t *testing.T, s *apiserver.Server, user string) *lateClient {
	t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	r, err := Open(Config{Kubeconfig: s.Kubeconfig(user), Node: "n1", Version: "test"}, log)
	if err != nil {
		t.Fatal(err)
	}
	c := &lateClient{client: &client{Registry: r, t: t, store: registry.NewStore()}}
	all := &feeds{store: c.store, byKind: map[registry.Kind]*feed{}}
	for _, k := range kinds("n1") {
		all.byKind[k.kind] = newFeed(k.kind, c.store, func() {})
	}
	r.feeds.Store(all)
	admin, err := Open(Config{Kubeconfig: s.Kubeconfig(agent), Node: "n1", Version: "test"}, log)
	if err != nil {
		t.Fatal(err)
	}
	page, err := claimKind.page(t.Context(), admin.weft, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var items []any
	for _, i := range page.Items {
		items = append(items, i)
	}
	if err := all.byKind[registry.AddressClaim].Replace(items, page.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	c.watch = func() {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			r.follow(ctx, claimKind, all.byKind[registry.AddressClaim], newContact(registry.NewStore(), log))
		})
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
	}
	t.Cleanup(func() {
		r.http.CloseIdleConnections()
		admin.http.CloseIdleConnections()
	})
	return c
}

func (c *client) claim(name string) (claim cluster.Claim, there bool) {
	c.store.View(func(s *registry.State) { claim, there = s.Claims["default/"+name] })
	return claim, there
}

func claimManifest(name, addr string) string {
	return ourGroup + fmt.Sprintf("kind: AddressClaim\nmetadata: {name: %s, namespace: default}\nspec: {ipv4: %s}\n", name, addr)
}

// grant lets a user do something; the API server knows in a moment.
func grant(s *apiserver.Server, user, rule string) {
	s.Apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ` + user + `}
rules: [` + rule + `]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ` + user + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ` + user + `}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + user + `}]
`)
}

func TestClaimsBeforeABlock(t *testing.T) {
	s := newCluster(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *apiserver.Server)
	}{
		{"no claims, no block", noBlockWithoutClaims},
		{"no block without its claims", blockIsLeasedWithItsClaims},
		{"deleted claims go", claimsDoNotOutliveTheirDeletion},
		{"several pages", claimsOfSeveralPages},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// Who leases a block knows which of its addresses are kept, however late its
// watch of claims is.
func blockIsLeasedWithItsClaims(t *testing.T, s *apiserver.Server) {
	s.Apply(claimManifest("known", "10.42.3.6"))
	c := lateWatch(t, s, agent)
	s.Apply(claimManifest("web-0", "10.42.3.7") + claimManifest("web-1", "10.42.3.8"))

	// The lease of an address is no reason to ask: pods would pay for it.
	single := lease("10.42.250.7/32", "n1")
	single.Pod = "default/web-9"
	if err := c.Create(t.Context(), single); err != nil {
		t.Fatal(err)
	}
	if _, there := c.claim("web-0"); there {
		t.Fatal("the lease of an address brings the claims: the watch is not late in this test, or pods pay for claims")
	}
	if err := c.Create(t.Context(), lease("10.42.3.0/24", "n1")); err != nil {
		t.Fatal(err)
	}
	for name, addr := range map[string]string{"known": "10.42.3.6", "web-0": "10.42.3.7", "web-1": "10.42.3.8"} {
		claim, there := c.claim(name)
		if !there || len(claim.Addresses) != 1 || claim.Addresses[0] != netip.MustParseAddr(addr) || claim.UID == "" {
			t.Errorf("claim %s: %+v, in the Store: %v", name, claim, there)
		}
	}

	// One of them goes before the watch has brought it. The other one stays.
	s.MustKubectl("", "-n", "default", "delete", "addressclaim", "web-0", "known")
	if err := c.Create(t.Context(), lease("10.42.4.0/24", "n1")); err != nil {
		t.Fatal(err)
	}
	if _, there := c.claim("web-0"); !there {
		t.Error("a claim leaves the Store before the watch tells: it may have been made anew since the list")
	}
	c.watch()
	c.eventually("what was deleted is gone", func(s *registry.State) bool {
		_, first := s.Claims["default/web-0"]
		_, known := s.Claims["default/known"]
		_, second := s.Claims["default/web-1"]
		return !first && !known && second
	})
	s.MustKubectl("", "-n", "default", "delete", "addressclaim", "web-1")
	c.eventually("the other one is gone too", func(s *registry.State) bool { return len(s.Claims) == 0 })
}

// A claim that is made and deleted while blocks are leased does not stay in the
// Store, wherever the list falls between the watch's news.
func claimsDoNotOutliveTheirDeletion(t *testing.T, s *apiserver.Server) {
	s.Apply(nodeManifest("n1", "192.0.2.1"))
	c := synced(t, s, "n1")
	grant(s, limited, `{apiGroups: [weft.dev], resources: [addressclaims], verbs: ["*"]}`)
	other := lateWatch(t, s, limited) // whose user makes and deletes claims
	apiserver.Eventually(t, func() error {
		return other.weft.Get().Resource(addressclaims).Do(t.Context()).Error()
	})
	const rounds = 100
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range rounds {
			name := fmt.Sprint("web-", i)
			err := other.KeepAddresses(t.Context(), cluster.Claim{Namespace: "default", Name: name, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 42, 3, byte(i + 2)})}})
			if err == nil {
				err = other.weft.Delete().Namespace("default").Resource(addressclaims).Name(name).Do(t.Context()).Error()
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for running := true; running; {
		if err := c.learnClaims(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			running = false
		default:
		}
	}
	c.eventually("no claim is left", func(s *registry.State) bool { return len(s.Claims) == 0 })
}

// More claims than one page has.
func claimsOfSeveralPages(t *testing.T, s *apiserver.Server) {
	c := lateWatch(t, s, agent)
	var all strings.Builder
	const count = pageSize + 3
	for i := range count {
		all.WriteString(claimManifest(fmt.Sprint("web-", i), netip.AddrFrom4([4]byte{10, 42, byte(i >> 7), byte(2 + i&0x7f)}).String()))
	}
	s.MustKubectl(all.String(), "create", "-f", "-")
	if err := c.learnClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.store.View(func(s *registry.State) {
		if len(s.Claims) != count {
			t.Errorf("%d claims, want %d", len(s.Claims), count)
		}
	})
}

// Without the claims no block is leased, and the lease of an address is.
func noBlockWithoutClaims(t *testing.T, s *apiserver.Server) {
	grant(s, limited, `{apiGroups: [weft.dev], resources: [subnetleases], verbs: ["*"]}`)
	c := lateWatch(t, s, limited)
	single := lease("10.42.250.8/32", "n1")
	single.Pod = "default/web-9"
	apiserver.Eventually(t, func() error { // the API server learns of the role
		err := c.Create(t.Context(), single)
		if errors.Is(err, registry.ErrExists) {
			return nil
		}
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := c.Create(ctx, lease("10.42.3.0/24", "n1"))
	if !errors.Is(err, registry.ErrUntried) || !strings.Contains(err.Error(), "SubnetLease 10-42-3-0-24") || !strings.Contains(err.Error(), "ClusterRole") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Registry.lease(t.Context(), lease("10.42.3.0/24", "n1").Name()); err == nil {
		t.Error("the lease was created")
	}
}
