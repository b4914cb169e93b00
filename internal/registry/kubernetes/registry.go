// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"weft.dev/weft/internal/registry"
)

// Config says which API server, and who asks.
type Config struct {
	// Kubeconfig is a file with server and credentials. "": the service account
	// of the pod that this process runs in.
	Kubeconfig string
	Server     string // its URL, instead of what the above say
	Node       string // this node's name
	Version    string // of Weft, for the server's logs

	// Observe, if set, is told of every answer, from any goroutine: verb and
	// resource as in RBAC ("watch", "nodes/status"), the HTTP status (0: no
	// answer), and how long it took, for a watch until its start.
	Observe func(verb, resource string, code int, took time.Duration)
}

// Registry is a registry.Cluster and a registry.Pods. It is safe for concurrent
// use.
type Registry struct {
	node   string
	log    *slog.Logger
	core   *rest.RESTClient // core/v1
	weft   *rest.RESTClient // weft.dev/v1alpha1
	http   *http.Client
	events *events
	feeds  atomic.Pointer[feeds] // nil while Run does not run
}

var (
	_ registry.Cluster = (*Registry)(nil)
	_ registry.Pods    = (*Registry)(nil)
)

// feeds is what Run follows, by kind.
type feeds struct {
	store  *registry.Store
	byKind map[registry.Kind]*feed
}

// Open returns the registry. It does not ask the server anything.
func Open(c Config, log *slog.Logger) (*Registry, error) {
	if c.Node == "" {
		return nil, errors.New("open the Kubernetes API: want the name of this node")
	}
	config, err := c.rest()
	if err != nil {
		return nil, err
	}
	core, weft, client, err := clients(config)
	if err != nil {
		return nil, err
	}
	r := &Registry{node: c.Node, log: log, core: core, weft: weft, http: client}
	r.events = newEvents(r)
	return r, nil
}

// Run implements registry.Source. It also sends what is reported. It returns
// nil when ctx ends. It must not run twice at a time.
func (r *Registry) Run(ctx context.Context, into *registry.Store) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer utilnet.CloseIdleConnectionsFor(r.http.Transport)
	state := newContact(into, r.log)
	all := &feeds{store: into, byKind: map[registry.Kind]*feed{}}
	for _, k := range kinds(r.node) {
		all.byKind[k.kind] = newFeed(k.kind, into, func() { state.succeeded(k.kind, time.Now()) })
	}
	r.feeds.Store(all)
	defer r.feeds.Store(nil)
	var running sync.WaitGroup
	for _, k := range kinds(r.node) {
		running.Go(func() { r.follow(ctx, k, all.byKind[k.kind], state) })
	}
	running.Go(func() { r.events.run(ctx) })
	state.run(ctx)
	running.Wait()
	return nil
}
