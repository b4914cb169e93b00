// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"maps"
	"sync"

	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/reconcile"
	"weft.dev/weft/internal/registry"
)

// Drivers write to the kernel.
type Drivers struct {
	Sysctls    reconcile.Driver[topology.SysctlKey, topology.Sysctl]
	Links      reconcile.Driver[topology.LinkKey, topology.Link]
	Addresses  reconcile.Driver[topology.AddressKey, topology.Address]
	Neighbours reconcile.Driver[topology.NeighbourKey, topology.Neighbour]
	FDB        reconcile.Driver[topology.FDBKey, topology.FDB]
	Routes     reconcile.Driver[topology.RouteKey, topology.Route]
	NAT        reconcile.Driver[topology.NATKey, topology.NAT]
}

// Kinds of objects, in the order in which they are made.
const (
	Sysctls    = "sysctls"
	Links      = "links"
	Addresses  = "addresses"
	Neighbours = "neighbours"
	FDB        = "fdb"
	Routes     = "routes"
	NAT        = "nat"
)

// Underlay is no kind of object, but what Noticed is told when an interface
// that is not ours changed: the routes through it may have vanished.
const Underlay = "underlay"

// Pods is no kind of object, either: Noticed is told it when host routes of pods
// may have gone, which a route of ours may await.
const Pods = "pods"

// Node is what this node's own pods need of it.
type Node struct {
	Sysctls map[topology.SysctlKey]topology.Wanted[topology.Sysctl]
	Routes  map[topology.RouteKey]topology.Wanted[topology.Route] // of the local table
	NAT     map[topology.NATKey]topology.Wanted[topology.NAT]
}

// Fabric is one node's network. Its methods may be called concurrently; only
// one goroutine calls Step, or Run.
type Fabric struct {
	store *registry.Store        // nil: no cluster
	sub   *registry.Subscription // nil without a store
	wake  chan struct{}

	reconciler *reconcile.Reconciler
	tables     tables

	mu       sync.Mutex
	topology *topology.Map
	placed   bool  // SetSelf was called
	synced   bool  // the store was synced
	node     *Node // not taken in yet; nil: nothing new
	waiters  []*waiter

	// Step alone uses these.
	own     Node // in the tables
	hasNode bool // SetNode was called
	opened  stage
}

// New returns a Fabric. A nil store stands for a node without a cluster.
func New(store *registry.Store, d Drivers) *Fabric {
	f := &Fabric{
		store: store, wake: make(chan struct{}, 1), topology: topology.NewMap(),
		tables: newTables(d),
	}
	if store != nil {
		f.sub = store.Subscribe(registry.Node, registry.SubnetLease)
	}
	t := &f.tables
	f.reconciler = reconcile.New(t.sysctls, t.links, t.addresses, t.neighbours, t.fdb, t.routes, t.nat)
	f.poke()
	return f
}

// SetSelf tells the node's place in the underlay.
func (f *Fabric) SetSelf(s topology.Self) {
	f.mu.Lock()
	f.topology.SetSelf(s)
	f.placed = true
	f.mu.Unlock()
	f.poke()
}

// SetNode tells what the node's own pods need.
func (f *Fabric) SetNode(n Node) {
	n = Node{Sysctls: maps.Clone(n.Sysctls), Routes: maps.Clone(n.Routes), NAT: maps.Clone(n.NAT)}
	f.mu.Lock()
	f.node = &n
	f.mu.Unlock()
	f.poke()
}

// Resync makes the next Step read one kind from the kernel; "" means all.
func (f *Fabric) Resync(kind string) {
	f.reconciler.Resync(kind)
	f.poke()
}

// Noticed takes in what the kernel said about one object: its key and value,
// of package topology, or that it is gone. It triggers, and is never believed:
// if it contradicts what is known, the kind is read again, soon but not often.
// A nil key says that anything of the kind may have changed, an empty kind that
// everything may.
func (f *Fabric) Noticed(kind string, key, value any, gone bool) {
	var step bool
	switch kind {
	case Pods:
		step = f.reconciler.Retry(Routes)
	case Underlay:
		step = f.reconciler.Noticed(Routes, nil, nil, false)
	default:
		step = f.reconciler.Noticed(kind, key, value, gone)
		if kind == "" {
			step = f.reconciler.Retry(Routes) || step // pods may have gone, too
		}
	}
	if step {
		f.poke()
	}
}

// Reach returns how each lease is reached, by name.
func (f *Fabric) Reach() []topology.Reach {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.topology.Reach()
}

// Rejected returns why leases of this node are rejected, by lease name.
func (f *Fabric) Rejected() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.topology.Rejected()
}

// Status returns the state of each kind, in the order of the kinds.
func (f *Fabric) Status() []reconcile.Status { return f.reconciler.Status() }

// Objects returns the desired objects of a kind, ascending by key; their keys
// and values are of package topology.
func (f *Fabric) Objects(kind string) []reconcile.Object { return f.reconciler.Objects(kind) }

// poke calls for a Step.
func (f *Fabric) poke() {
	select {
	case f.wake <- struct{}{}:
	default: // it is called for already
	}
}
