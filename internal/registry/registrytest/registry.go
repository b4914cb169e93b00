// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// Registry holds objects and remembers every change.
type Registry struct {
	// Now is the time that leases get as theirs of creation, and changes as
	// theirs.
	Now     time.Time
	objects map[registry.Key]any
	log     []logged
	version int
}

type logged struct {
	registry.Change
	at time.Time
}

// New returns an empty Registry.
func New(now time.Time) *Registry { return &Registry{Now: now, objects: map[registry.Key]any{}} }

// Put creates or changes an object by an outsider's hand. A lease is taken as
// it is, but for UID and Version where they are empty.
func (r *Registry) Put(key registry.Key, object any) {
	if l, is := object.(cluster.Lease); is {
		object = r.complete(l)
	}
	r.objects[key] = object
	r.record(key, object)
}

// Remove deletes an object by an outsider's hand, if there is one.
func (r *Registry) Remove(key registry.Key) {
	if _, there := r.objects[key]; there {
		delete(r.objects, key)
		r.record(key, nil)
	}
}

func (r *Registry) record(key registry.Key, object any) {
	r.log = append(r.log, logged{registry.Change{Key: key, Object: object}, r.Now})
}

func (r *Registry) complete(l cluster.Lease) cluster.Lease {
	r.version++
	if l.UID == "" {
		l.UID = "lease-" + strconv.Itoa(r.version)
	}
	if l.Version == "" {
		l.Version = strconv.Itoa(r.version)
	}
	if l.Created == 0 {
		l.Created = r.Now.UnixNano()
	}
	l.Addresses = slices.Clone(l.Addresses)
	return l
}

// Lease returns the lease of that name, if there is one.
func (r *Registry) Lease(name string) (cluster.Lease, bool) {
	l, there := r.objects[leaseKey(name)].(cluster.Lease)
	return l, there
}

// Leases returns all leases, ascending by subnet.
func (r *Registry) Leases() []cluster.Lease {
	var list []cluster.Lease
	for _, object := range r.objects {
		if l, is := object.(cluster.Lease); is {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b cluster.Lease) int { return a.Subnet.Compare(b.Subnet) })
	return list
}

func leaseKey(name string) registry.Key { return registry.Key{Kind: registry.SubnetLease, Name: name} }

// Create implements registry.Leases, without failures. See Client.
func (r *Registry) Create(l cluster.Lease) error {
	if _, there := r.Lease(l.Name()); there {
		return fmt.Errorf("SubnetLease %s: %w", l.Name(), registry.ErrExists)
	}
	l.UID, l.Version, l.Created = "", "", 0
	r.Put(leaseKey(l.Name()), l)
	return nil
}

// Replace implements registry.Leases, without failures.
func (r *Registry) Replace(l cluster.Lease) error {
	old, there := r.Lease(l.Name())
	if !there || old.UID != l.UID || old.Version != l.Version {
		return fmt.Errorf("SubnetLease %s: %w", l.Name(), registry.ErrConflict)
	}
	l.Version, l.Created = "", old.Created
	r.Put(leaseKey(l.Name()), l)
	return nil
}

// Delete implements registry.Leases, without failures.
func (r *Registry) Delete(l cluster.Lease) error {
	if old, there := r.Lease(l.Name()); there && old.UID != l.UID {
		return fmt.Errorf("SubnetLease %s: %w", l.Name(), registry.ErrConflict)
	}
	r.Remove(leaseKey(l.Name()))
	return nil
}

// Len returns how many changes there have been: a place in their sequence, to
// compare with Feed.Position.
func (r *Registry) Len() int { return len(r.log) }

// Feed delivers changes to one Store.
type Feed struct {
	registry *Registry
	store    *registry.Store
	next     int
}

// Connect delivers everything that there is to a new Store, which is synced
// thereby, and returns the Feed of what changes later.
func (r *Registry) Connect(store *registry.Store) *Feed {
	keys := slices.SortedFunc(maps.Keys(r.objects), func(a, b registry.Key) int { return strings.Compare(a.String(), b.String()) })
	changes := make([]registry.Change, 0, len(keys))
	for _, k := range keys {
		changes = append(changes, registry.Change{Key: k, Object: r.objects[k]})
	}
	store.Apply(changes...)
	store.Synced(r.Now)
	return &Feed{registry: r, store: store, next: len(r.log)}
}

// Position is the number of changes that were delivered, of all that there
// have been.
func (f *Feed) Position() int { return f.next }

// Pending is the number of changes not delivered yet.
func (f *Feed) Pending() int { return len(f.registry.log) - f.next }

// Deliver delivers the next n changes, or as many as there are, at once.
func (f *Feed) Deliver(n int) {
	n = min(n, f.Pending())
	changes := make([]registry.Change, 0, n)
	for _, l := range f.registry.log[f.next : f.next+n] {
		changes = append(changes, l.Change)
	}
	f.next += n
	f.store.Apply(changes...)
}

// DeliverUntil delivers what changed until a time, that time included.
func (f *Feed) DeliverUntil(t time.Time) {
	n := 0
	for _, l := range f.registry.log[f.next:] {
		if l.at.After(t) {
			break
		}
		n++
	}
	f.Deliver(n)
}
