// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/test/apiserver"
)

// agent is the user of the tests: it may do what the ClusterRole says.
const agent = "weft-agent"

// limited is one that may do next to nothing.
const limited = "limited"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer starts an API server without Weft's kinds.
func newServer(t *testing.T) *apiserver.Server {
	t.Helper()
	s := apiserver.Start(t, agent, limited)
	role, err := os.ReadFile("testdata/clusterrole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(string(role) + `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: weft-agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: weft-agent}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + agent + `}]
`)
	return s
}

// newCluster starts one with them.
func newCluster(t *testing.T) *apiserver.Server {
	t.Helper()
	s := newServer(t)
	s.ApplyCRDs(apiserver.Repository(t, "deploy/chart/crds"))
	return s
}

// client is a Registry that runs, with its Store.
type client struct {
	*Registry
	t     *testing.T
	store *registry.Store

	mu    sync.Mutex
	asked map[string]int // requests, by "verb resource code"
}

func (c *client) observe(verb, resource string, code int, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[fmt.Sprintf("%s %s %d", verb, resource, code)]++
}

func (c *client) requests(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[what]
}

// run opens the registry of a node and runs it until the test ends.
func run(t *testing.T, s *apiserver.Server, node string) *client {
	t.Helper()
	c := &client{t: t, store: registry.NewStore(), asked: map[string]int{}}
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	r, err := Open(Config{Kubeconfig: s.Kubeconfig(agent), Node: node, Version: "test", Observe: c.observe}, log)
	if err != nil {
		t.Fatal(err)
	}
	c.Registry = r
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx, c.store); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(3 * time.Second):
			t.Error("Run does not end with its context")
		}
	})
	return c
}

// synced runs it and waits for the first view.
func synced(t *testing.T, s *apiserver.Server, node string) *client {
	t.Helper()
	c := run(t, s, node)
	c.eventually("synced", func(s *registry.State) bool { return s.Synced && s.Err == nil })
	return c
}

// eventually waits until the Store is as it should be.
func (c *client) eventually(what string, ok func(*registry.State) bool) {
	c.t.Helper()
	apiserver.Eventually(c.t, func() (err error) {
		c.store.View(func(s *registry.State) {
			if !ok(s) {
				err = fmt.Errorf("it is not so: %s; rejected %v, synced %v, contact %w", what, s.Rejected, s.Synced, s.Err)
			}
		})
		return err
	})
}

func (c *client) lease(name string) (l cluster.Lease, there bool) {
	c.store.View(func(s *registry.State) { l, there = s.Leases[name] })
	return l, there
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(text []byte) (int, error) {
	w.t.Logf("%s", text)
	return len(text), nil
}

func lease(subnet, node string) cluster.Lease {
	return cluster.Lease{Subnet: netip.MustParsePrefix(subnet), Pool: "default", Node: node, NodeUID: "uid-of-" + node,
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
}

func nodeManifest(name, address string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {zone: a}}\n"+
		"status: {addresses: [{type: InternalIP, address: %s}]}\n", name, address)
}

func podManifest(name, node string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, annotations: {weft.dev/pool: blue, other.dev/x: z}}\n"+
		"spec: {nodeName: %s, containers: [{name: c, image: none}]}\n", name, node)
}

const ourGroup = "---\napiVersion: weft.dev/v1alpha1\n"

func poolManifest(name, cidr string) string {
	return ourGroup + fmt.Sprintf("kind: IPPool\nmetadata: {name: %s}\nspec: {ipv4: {cidr: %s}}\n", name, cidr)
}
