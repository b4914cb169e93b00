// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"weft.dev/weft/internal/registry"
)

// feed is what is on its way from the registry to a node's store. Changes of
// one object arrive in their order; of different ones, in any.
type feed struct {
	pending []message
	missing int // messages of the first view that have not arrived
	timer   timer
}

type message struct {
	registry.Change
	first bool // of the first view
}

// hear sends a change on its way to the node.
func (n *node) hear(c registry.Change) {
	if !n.up {
		return
	}
	n.feed.pending = append(n.feed.pending, message{Change: c})
	n.expect()
}

// expect has something arrive, in a while.
func (n *node) expect() {
	if n.contact && len(n.feed.pending) > 0 && n.feed.timer.at.IsZero() {
		n.set(&n.feed.timer, n.w.now.Add(n.w.latency()), n.deliver)
	}
}

// latency is mostly short.
func (w *World) latency() time.Duration {
	switch r := w.rng.IntN(100); {
	case r < 70 || !w.faulty:
		return w.between(5*time.Millisecond, 200*time.Millisecond)
	case r < 99:
		return w.between(200*time.Millisecond, 3*time.Second)
	default:
		return w.between(3*time.Second, 90*time.Second)
	}
}

// connect begins with everything that there is, in any order.
func (n *node) connect() {
	n.feed = feed{timer: timer{what: "hears"}}
	n.w.tap.View(func(s *registry.State) {
		add := func(k registry.Kind, name string, object any) {
			change := registry.Change{Key: registry.Key{Kind: k, Name: name}, Object: object}
			n.feed.pending = append(n.feed.pending, message{change, true})
		}
		for _, name := range sortedKeys(s.Nodes) {
			add(registry.Node, name, s.Nodes[name])
		}
		for _, name := range sortedKeys(s.Pools) {
			add(registry.IPPool, name, s.Pools[name])
		}
		for _, name := range sortedKeys(s.Leases) {
			add(registry.SubnetLease, name, s.Leases[name])
		}
	})
	n.w.rng.Shuffle(len(n.feed.pending), func(i, j int) {
		p := n.feed.pending
		p[i], p[j] = p[j], p[i]
	})
	n.feed.missing = len(n.feed.pending)
	n.expect()
}

// deliver has some of what is on its way arrive.
func (n *node) deliver() {
	w, f := n.w, &n.feed
	count := len(f.pending)
	if w.chance(4) {
		count = 1 + w.rng.IntN(count)
	}
	switch {
	case w.chance(4): // one change overtakes others
		n.arrive(f.take(w.rng.IntN(len(f.pending)), !w.options.mutant.backward))
	default:
		messages := slices.Clone(f.pending[:count])
		f.pending = slices.Delete(f.pending, 0, count)
		n.arrive(messages...)
	}
	n.expect()
}

// take removes a message; where ordered, the first about the same object.
func (f *feed) take(i int, ordered bool) message {
	m := f.pending[i]
	if ordered {
		i = slices.IndexFunc(f.pending, func(o message) bool { return o.Key == m.Key })
		m = f.pending[i]
	}
	f.pending = slices.Delete(f.pending, i, i+1)
	return m
}

// arrive brings messages to the store, and wakes who waits for them.
func (n *node) arrive(messages ...message) {
	changes := make([]registry.Change, 0, len(messages))
	for _, m := range messages {
		changes = append(changes, m.Change)
		if m.first {
			n.feed.missing--
		}
	}
	n.w.trace.add(n.w.now, "  %d changes arrive, %d are on their way", len(changes), len(n.feed.pending))
	n.store.Apply(changes...)
	if n.feed.missing == 0 || n.w.options.mutant.hasty && n.feed.missing < 50 {
		n.store.Synced(n.w.now)
	}
	if slices.ContainsFunc(changes, func(c registry.Change) bool { return c.Kind == registry.IPPool }) {
		n.learnPools()
	}
	n.wake()
}

// awaits reports whether a change of the object is on its way.
func (n *node) awaits(key registry.Key) bool {
	return n.up && slices.ContainsFunc(n.feed.pending, func(m message) bool { return m.Key == key })
}

// lose ends contact, which comes back after a while with all that was missed.
func (n *node) lose(d time.Duration) {
	if !n.up || !n.contact {
		return
	}
	n.contact = false
	n.feed.timer.at = time.Time{}
	n.store.Unreachable(errContact, n.w.now)
	n.wake()
	n.after(d, "has contact again", n.regain)
}

func (n *node) regain() {
	if n.contact {
		return
	}
	n.contact = true
	messages := n.feed.pending
	n.feed.pending = nil
	n.arrive(messages...)
}
