// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/reconcile"
	"weft.dev/weft/internal/registry"
)

// Step makes one pass and returns when the next is due at the latest; the zero
// time stands for never. What changes in the store, or is said by SetSelf,
// SetNode, Resync, Noticed or Wait, calls for one at once.
func (f *Fabric) Step(now time.Time) (next time.Time) { return f.step(now).Next }

func (f *Fabric) step(now time.Time) reconcile.Pass {
	waiting := f.waiting() // who begins to wait after this point waits for the next Step
	f.takeIn()
	pass := f.reconciler.Step(now)
	f.fulfil(waiting)
	return pass
}

// takeIn brings the tables up to date with everything that was said.
func (f *Fabric) takeIn() {
	news := f.view()

	f.mu.Lock()
	defer f.mu.Unlock()
	for name, known := range news.nodes {
		f.topology.SetNode(name, known)
	}
	for _, l := range news.leases {
		f.topology.SetLease(l)
	}
	for _, name := range news.gone {
		f.topology.DeleteLease(name)
	}
	f.synced = f.synced || news.synced

	if f.node != nil {
		f.tables.replace(f.own, *f.node)
		f.own, f.hasNode, f.node = *f.node, true, nil
	}
	is := stage{node: f.hasNode, cluster: f.synced && f.placed}
	switch {
	case f.store == nil:
		is.cluster = f.hasNode // and nothing of it is desired
	case is.cluster:
		f.tables.update(f.topology.Updates())
	}
	f.tables.open(f.opened, is)
	f.opened = is
}

// news is what changed in the store.
type news struct {
	nodes  map[string]bool
	leases []cluster.Lease
	gone   []string // leases
	synced bool
}

// view reads what changed in the store. The keys are taken during the view: if
// it says synced, no key is missing. Nothing else is locked meanwhile, so that
// nobody waits for a writer of the store.
func (f *Fabric) view() (n news) {
	if f.store == nil {
		return n
	}
	n.nodes = map[string]bool{}
	f.store.View(func(s *registry.State) {
		n.synced = s.Synced
		for _, k := range f.sub.Take() {
			switch k.Kind {
			case registry.Node:
				_, n.nodes[k.Name] = s.Nodes[k.Name]
			case registry.SubnetLease:
				if l, there := s.Leases[k.Name]; there {
					n.leases = append(n.leases, l)
				} else {
					n.gone = append(n.gone, k.Name)
				}
			}
		}
	})
	return n
}
