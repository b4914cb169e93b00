// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// maxReleased is how many released blocks are remembered.
const maxReleased = 1024

// view is what the node knows of the registry: what the Store shows, and on top
// of it what this node has written since. It follows the Store's changes, so
// that a pass costs what has changed and not what there is.
type view struct {
	self     string
	store    *registry.Store
	changes  *registry.Subscription
	leases   map[string]cluster.Lease
	pools    []cluster.Pool // accepted ones
	nodes    map[string]cluster.Node
	node     *cluster.Node
	released []netip.Prefix // the longest released first

	synced bool
	err    error     // why the Store has no contact
	since  time.Time // of contact, or its loss
}

func newView(self string, store *registry.Store) view {
	return view{
		self: self, store: store, changes: store.Subscribe(registry.SubnetLease, registry.IPPool, registry.Node),
		leases: map[string]cluster.Lease{}, nodes: map[string]cluster.Node{},
	}
}

// update takes in what the Store shows by now, and forgets writes that it shows
// or that were not to be seen for too long.
func (v *view) update(w writes, now time.Time) {
	var pools []cluster.Pool
	poolsChanged := false
	v.store.View(func(s *registry.State) {
		// Taken inside the view: if it says synced, no key is missing.
		changed := v.changes.Take()
		v.synced, v.err, v.since = s.Synced, s.Err, s.Since
		v.node = nil
		if n, known := s.Nodes[v.self]; known {
			v.node = &n
		}
		for _, key := range changed {
			switch key.Kind {
			case registry.IPPool:
				poolsChanged = true
			case registry.Node:
				v.showNode(key.Name, s)
			default:
				l, there := s.Leases[key.Name]
				w.seen(key.Name, l, there)
				v.show(key.Name, s, w)
			}
		}
		if v.err == nil {
			for _, name := range w.expired(now, v.since) {
				v.show(name, s, w)
			}
		}
		if poolsChanged {
			for _, p := range s.Pools {
				pools = append(pools, p)
			}
		}
	})
	if poolsChanged {
		v.pools, _ = cluster.AcceptPools(pools, maps.Values(v.leases))
	}
}

func (v *view) showNode(name string, s *registry.State) {
	if n, there := s.Nodes[name]; there {
		v.nodes[name] = n
	} else {
		delete(v.nodes, name)
	}
}

// show takes in what the Store has under the name.
func (v *view) show(name string, s *registry.State, w writes) {
	l, there := s.Leases[name]
	old, known := v.leases[name]
	switch {
	case there:
		if w.isGone(l) {
			l.Node = givenBack(l.Node)
		}
		v.leases[name] = l
		v.forget(l.Subnet)
	case known && old.Pod != "":
		delete(v.leases, name)
	case known:
		delete(v.leases, name)
		v.forget(old.Subnet)
		v.released = append(v.released, old.Subnet)
		if n := len(v.released) - maxReleased; n > 0 {
			v.released = slices.Delete(v.released, 0, n)
		}
	}
}

func (v *view) forget(subnet netip.Prefix) {
	if i := slices.Index(v.released, subnet); i >= 0 {
		v.released = slices.Delete(v.released, i, i+1)
	}
}

// givenBack is whose a lease is that this node is deleting: nobody's yet, and
// not this node's any more.
func givenBack(node string) string { return node + " (being given back)" }
