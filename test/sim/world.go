// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/registrytest"
)

// Calm is how long the nodes have to converge after the last fault. It covers
// a late call (40 s), a write that nobody ever sees (a minute), the longest
// backoff (a minute), idleAfter, and the next look at the kernel (75 s), one
// after the other.
const Calm = 5 * time.Minute

// Options say what is run.
type Options struct {
	Seed   uint64
	Nodes  int
	Events int       // how many happen before the faults end
	AtOnce bool      // all nodes join at the same instant
	Tight  bool      // the pool has few blocks more than nodes
	Log    io.Writer // gets the whole log; may be nil

	mutant mutant
}

// mutant is a mistake that a World can be given, to see that it is noticed.
type mutant struct {
	leases   func(*node, registry.Leases) registry.Leases // what the node writes to
	drain    bool                                         // IPAM forgets at a restart which blocks are draining
	hasty    bool                                         // the source says Synced with half of a view
	nosy     bool                                         // the kernel's driver shows what is a stranger's
	careless bool                                         // the kernel's driver drops deletions
	backward bool                                         // changes of one object come out of order
}

// Result is what a run was.
type Result struct {
	Events  int
	Lines   int           // of the log
	Hash    string        // of the log
	Virtual time.Duration // how much time passed
	Rest    time.Duration // from the last fault to the last write to the registry
	Nodes   int           // alive at the end
	Leases  int           // likewise
	Removed int           // nodes that were taken away for good
	Crashes int
}

// World is a cluster and all that can happen to it.
type World struct {
	options Options
	rng     *rand.Rand
	now     time.Time
	queue   queue
	trace   *trace
	err     error // the first rule that was broken

	registry *registrytest.Registry
	tap      *registry.Store // shows what changed in the registry
	tapped   *registrytest.Feed
	changes  *registry.Subscription

	faulty  bool
	backend topology.Backend // of all nodes, when nobody changes it
	nodes   []*node          // all that ever were, in the order of joining
	live    []*node          // those that were not removed
	taken   map[netip.Addr]bool
	uids    int
	garbage map[string]bool // leases that an outsider made, by name
	written time.Time       // a lease, last

	wanderers []wanderer

	used map[netip.Prefix]*node // who gives addresses from what, or has pods there, without the exempt
	pods map[netip.Addr]string  // who has which address, likewise

	result Result
}

// New returns a World in which nothing has happened yet.
func New(o Options) *World {
	start := time.Unix(1_700_000_000, 0)
	w := &World{
		options: o, rng: rand.New(rand.NewPCG(o.Seed, 0x77656674)), now: start, trace: newTrace(start, o.Log), faulty: true,
		registry: registrytest.New(start), tap: registry.NewStore(),
		taken: map[netip.Addr]bool{}, garbage: map[string]bool{},
		used: map[netip.Prefix]*node{}, pods: map[netip.Addr]string{},
	}
	w.tapped = w.registry.Connect(w.tap)
	w.changes = w.tap.Subscribe(registry.Node, registry.IPPool, registry.SubnetLease)
	w.backend = pick(w, topology.Auto, topology.Auto, topology.VXLAN)
	w.put(registry.Key{Kind: registry.IPPool, Name: "default"}, w.firstPool())
	w.newWanderers()
	for range o.Nodes {
		d := time.Duration(0)
		if !o.AtOnce {
			d = w.between(0, 20*time.Second)
		}
		w.after(d, "join", w.join)
	}
	w.after(w.between(0, time.Second), "pods", w.churn)
	w.after(30*time.Second, "fault", w.fault)
	return w
}

// Run lets everything happen that the Options ask for. The error says which
// rule was broken.
func Run(o Options) (Result, error) {
	w := New(o)
	w.run(func() bool { return w.result.Events >= o.Events })
	w.heal()
	healed := w.now
	end := w.now.Add(Calm)
	w.run(func() bool { return w.queue.Len() == 0 || w.queue[0].at.After(end) })
	w.converged(healed)
	w.result.Lines, w.result.Hash = w.trace.n, w.trace.hash()
	w.result.Virtual = w.now.Sub(w.trace.start)
	w.result.Nodes, w.result.Leases = len(w.live), len(w.registry.Leases())
	return w.result, w.err
}

// Tail returns the end of the log.
func (w *World) Tail() string { return w.trace.tail() }

// run takes one event after the other.
func (w *World) run(end func() bool) {
	for w.err == nil && !end() {
		e := heap.Pop(&w.queue).(*event)
		if e.node != nil && e.node.life != e.life || e.still != nil && !e.still() {
			continue // nothing that happens
		}
		w.now = e.at
		w.registry.Now = w.now
		w.result.Events++
		if e.node == nil {
			w.trace.add(w.now, "%s", e.what)
			e.do()
			continue
		}
		w.trace.add(w.now, "%s %s", e.node.name, e.what)
		e.do()
		w.check(e.node)
	}
}

// violated ends the run.
func (w *World) violated(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("after %d events, at %s: %s\nthe last lines of the log:\n%s",
			w.result.Events, w.now.Sub(w.trace.start), fmt.Sprintf(format, args...), w.trace.tail())
	}
}

// put and remove are what outsiders do to the registry.
func (w *World) put(key registry.Key, object any) {
	w.trace.add(w.now, "  somebody writes %s: %v", key, object)
	w.registry.Put(key, object)
	w.publish()
}

func (w *World) remove(key registry.Key) {
	w.trace.add(w.now, "  somebody removes %s", key)
	w.registry.Remove(key)
	w.publish()
}

// write is a call of a node's as it reaches the registry.
func (w *World) write(n *node, call registrytest.Call) error {
	err := w.registry.Client(nil).Do(context.Background(), call)
	w.trace.add(w.now, "  %s %ss %s: %v", n.name, call.Verb, call.Lease.Name(), err)
	w.publish()
	return err
}

// publish sends what changed in the registry on its way to every node.
func (w *World) publish() {
	for w.tapped.Pending() > 0 {
		w.tapped.Deliver(1)
		for _, key := range w.changes.Take() {
			change := registry.Change{Key: key, Object: w.current(key)}
			if key.Kind == registry.SubnetLease {
				w.written = w.now
				if change.Object == nil {
					delete(w.garbage, key.Name)
				}
				if block, err := cluster.ParseLeaseName(key.Name); err == nil {
					w.checkHolder(block, key.Name)
				}
			}
			for _, n := range w.live {
				n.hear(change)
			}
		}
	}
}

// current returns an object as the registry has it; nil: not at all.
func (w *World) current(key registry.Key) (object any) {
	w.tap.View(func(s *registry.State) {
		switch key.Kind {
		case registry.Node:
			object = orNil(s.Nodes, key.Name)
		case registry.IPPool:
			object = orNil(s.Pools, key.Name)
		case registry.SubnetLease:
			object = orNil(s.Leases, key.Name)
		}
	})
	return object
}

func orNil[V any](m map[string]V, name string) any {
	if v, there := m[name]; there {
		return v
	}
	return nil
}

func nodeKey(name string) registry.Key { return registry.Key{Kind: registry.Node, Name: name} }
func poolKey(name string) registry.Key { return registry.Key{Kind: registry.IPPool, Name: name} }
func leaseKey(s netip.Prefix) registry.Key {
	return registry.Key{Kind: registry.SubnetLease, Name: cluster.LeaseName(s)}
}

// between draws a time.
func (w *World) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

// chance is true once in so many times, while there are faults.
func (w *World) chance(n int) bool { return w.faulty && w.rng.IntN(n) == 0 }

// pick draws one of several.
func pick[T any](w *World, of ...T) T { return of[w.rng.IntN(len(of))] }
