// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"weft.dev/weft/internal/core/cluster"
)

// Kind is the kind of an object, as in its manifest.
type Kind string

// Kinds.
const (
	Node         Kind = "Node"
	Namespace    Kind = "Namespace"
	Pod          Kind = "Pod"
	IPPool       Kind = "IPPool"
	SubnetLease  Kind = "SubnetLease"
	AddressClaim Kind = "AddressClaim"
)

// Key names an object. Name is "namespace/name" for a Pod or an AddressClaim.
type Key struct {
	Kind Kind
	Name string
}

// String returns "Kind name".
func (k Key) String() string { return string(k.Kind) + " " + k.Name }

// Change is one object's new state.
type Change struct {
	Key
	// Object is a cluster.Node, Namespace, Pod, Pool, Lease or Claim, as the
	// kind says; nil: there is none any more.
	Object any
}

// State is what the Store holds. It is valid during Store.View, and nobody
// changes it.
type State struct {
	Nodes      map[string]cluster.Node
	Namespaces map[string]cluster.Namespace
	Pods       map[string]cluster.Pod
	Pools      map[string]cluster.Pool
	Leases     map[string]cluster.Lease
	Claims     map[string]cluster.Claim
	// Rejected has an entry for everything that the source refuses, by object
	// ("IPPool default") or, where it cannot be told, by place ("file x.yaml").
	Rejected map[string]string

	Revision uint64    // increases with every change
	Synced   bool      // everything that there is has arrived
	Err      error     // why the source has no contact; nil: it has
	Since    time.Time // of the present contact, or loss of contact
}

// Store holds the latest state of every object. It is safe for concurrent use.
type Store struct {
	mu    sync.RWMutex
	state State
	subs  []*Subscription
}

// NewStore returns an empty Store, not yet synced.
func NewStore() *Store {
	return &Store{state: State{
		Nodes: map[string]cluster.Node{}, Namespaces: map[string]cluster.Namespace{}, Pods: map[string]cluster.Pod{},
		Pools: map[string]cluster.Pool{}, Leases: map[string]cluster.Lease{}, Claims: map[string]cluster.Claim{}, Rejected: map[string]string{},
	}}
}

// Apply takes changes in, in their order.
func (s *Store) Apply(changes ...Change) {
	if len(changes) == 0 {
		return
	}
	s.mu.Lock()
	for _, c := range changes {
		s.state.set(c)
	}
	s.state.Revision++
	var concerned []*Subscription
	for _, sub := range s.subs {
		if sub.note(changes) {
			concerned = append(concerned, sub)
		}
	}
	s.mu.Unlock()
	wake(concerned)
}

// set panics if the object is not of the kind that its key says: a Source with
// that mistake never worked.
func (s *State) set(c Change) {
	switch c.Kind {
	case Node:
		put(s.Nodes, c)
	case Namespace:
		put(s.Namespaces, c)
	case Pod:
		put(s.Pods, c)
	case IPPool:
		put(s.Pools, c)
	case SubnetLease:
		put(s.Leases, c)
	case AddressClaim:
		put(s.Claims, c)
	default:
		panic(fmt.Sprintf("registry: kind %q", c.Kind))
	}
}

func put[V any](m map[string]V, c Change) {
	if c.Object == nil {
		delete(m, c.Name)
		return
	}
	m[c.Name] = c.Object.(V)
}

// Reject records why an object is refused; an empty reason takes that back.
func (s *Store) Reject(object, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason == "" {
		delete(s.state.Rejected, object)
	} else {
		s.state.Rejected[object] = reason
	}
}

// Synced says that the source has contact and has delivered everything.
func (s *Store) Synced(now time.Time) { s.contact(nil, true, now) }

// Unreachable says that the source has lost contact, and why.
func (s *Store) Unreachable(err error, now time.Time) { s.contact(err, false, now) }

func (s *Store) contact(err error, synced bool, now time.Time) {
	s.mu.Lock()
	if (err == nil) != (s.state.Err == nil) || s.state.Since.IsZero() {
		s.state.Since = now
	}
	changed := synced && !s.state.Synced || (err == nil) != (s.state.Err == nil)
	s.state.Err = err
	s.state.Synced = s.state.Synced || synced
	subs := s.subs
	s.mu.Unlock()
	if changed {
		wake(subs)
	}
}

// View reads the state. read must not keep the maps, nor call the Store.
func (s *Store) View(read func(*State)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	read(&s.state)
}

// Subscription collects the keys of the objects that changed. Its owner takes
// them when it has time.
type Subscription struct {
	// C has an element whenever there may be something new: keys, or contact
	// gained or lost.
	C     <-chan struct{}
	c     chan struct{}
	kinds []Kind

	mu      sync.Mutex
	changed map[Key]struct{}
}

// Subscribe returns a Subscription to some kinds, in which everything that
// there is already counts as changed.
func (s *Store) Subscribe(kinds ...Kind) *Subscription {
	c := make(chan struct{}, 1)
	sub := &Subscription{C: c, c: c, kinds: kinds, changed: map[Key]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		for _, name := range s.state.Names(k) {
			sub.changed[Key{k, name}] = struct{}{}
		}
	}
	s.subs = append(slices.Clip(s.subs), sub)
	c <- struct{}{}
	return sub
}

// Names returns the names of all objects of a kind, in no order.
func (s *State) Names(kind Kind) []string {
	switch kind {
	case Node:
		return keys(s.Nodes)
	case Namespace:
		return keys(s.Namespaces)
	case Pod:
		return keys(s.Pods)
	case IPPool:
		return keys(s.Pools)
	case SubnetLease:
		return keys(s.Leases)
	case AddressClaim:
		return keys(s.Claims)
	}
	return nil
}

func keys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, name)
	}
	return list
}

// note reports whether one of the changes is of the Subscription's kinds.
func (sub *Subscription) note(changes []Change) (concerned bool) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, c := range changes {
		if slices.Contains(sub.kinds, c.Kind) {
			sub.changed[c.Key] = struct{}{}
			concerned = true
		}
	}
	return concerned
}

// Take returns the keys that changed since the last Take, ascending. Their
// objects are in the Store.
func (sub *Subscription) Take() []Key {
	sub.mu.Lock()
	changed := sub.changed
	sub.changed = map[Key]struct{}{}
	sub.mu.Unlock()
	list := make([]Key, 0, len(changed))
	for k := range changed {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b Key) int {
		if c := strings.Compare(string(a.Kind), string(b.Kind)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list
}

func wake(subs []*Subscription) {
	for _, sub := range subs {
		select {
		case sub.c <- struct{}{}:
		default: // it is awake already
		}
	}
}
