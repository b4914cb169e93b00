// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"weft.dev/weft/internal/registry"
)

// feed takes one kind from the reflector to the Store. It implements
// cache.ReflectorStore.
type feed struct {
	kind     registry.Kind
	store    *registry.Store
	complete func() // is told when everything of the kind has been read

	mu sync.Mutex
	// seen is the resource version up to which the reflector has told
	// everything; "": it has not told anything yet.
	seen string
	// ahead has the objects that this node has written, and that the Store has
	// in that version while the reflector has not told it yet.
	ahead    map[string]string
	rejected map[string]string // reasons, by name
}

var _ cache.ReflectorStore = (*feed)(nil)

func newFeed(kind registry.Kind, store *registry.Store, complete func()) *feed {
	return &feed{kind: kind, store: store, complete: complete, ahead: map[string]string{}, rejected: map[string]string{}}
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(object any) error { return f.Update(object) }

// Update implements cache.ReflectorStore.
func (f *feed) Update(object any) error {
	i := object.(*item)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = i.ResourceVersion
	if f.overtaken(i.key(), i.ResourceVersion) {
		return nil
	}
	f.apply(i)
	return nil
}

// Delete implements cache.ReflectorStore. The version is that of the deletion.
func (f *feed) Delete(object any) error {
	i := object.(*item)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = i.ResourceVersion
	if f.overtaken(i.key(), i.ResourceVersion) {
		return nil
	}
	f.judge(i.key(), nil)
	f.store.Apply(registry.Change{Key: f.key(i.key())})
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *feed) Replace(list []any, version string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if newer(f.seen, version) {
		clear(f.ahead) // the API server has gone back in time, and is right
	}
	f.seen = version
	listed := make(map[string]bool, len(list))
	var changes []registry.Change
	f.store.View(func(s *registry.State) {
		for _, object := range list {
			i := object.(*item)
			listed[i.key()] = true
			if i.err == nil && !f.overtaken(i.key(), version) && !same(s, f.kind, i) {
				changes = append(changes, registry.Change{Key: f.key(i.key()), Object: i.value})
			}
		}
		for _, name := range names(s, f.kind) {
			if !listed[name] && !f.overtaken(name, version) {
				changes = append(changes, registry.Change{Key: f.key(name)})
			}
		}
	})
	f.store.Apply(changes...)
	for _, object := range list {
		f.judge(object.(*item).key(), object.(*item).err)
	}
	for name := range f.rejected {
		if !listed[name] {
			f.judge(name, nil)
		}
	}
	f.complete()
	return nil
}

// Resync implements cache.ReflectorStore.
func (f *feed) Resync() error { return nil }

// wrote takes in what the API server has answered to a write. If the reflector
// has come that far it has told this, and perhaps more; if it has not begun, it will.
func (f *feed) wrote(i *item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !newer(i.ResourceVersion, f.seen) || newer(f.ahead[i.key()], i.ResourceVersion) {
		return
	}
	f.ahead[i.key()] = i.ResourceVersion
	f.apply(i)
}

// overtaken reports whether the Store has a newer state of the object.
func (f *feed) overtaken(name, version string) bool {
	written, is := f.ahead[name]
	if is && newer(written, version) {
		return true
	}
	delete(f.ahead, name)
	return false
}

// apply puts an object into the Store, unless it has the same already.
func (f *feed) apply(i *item) {
	f.judge(i.key(), i.err)
	if i.err != nil {
		return
	}
	unchanged := false
	f.store.View(func(s *registry.State) { unchanged = same(s, f.kind, i) })
	if !unchanged {
		f.store.Apply(registry.Change{Key: f.key(i.key()), Object: i.value})
	}
}

// judge tells the Store of an object that is refused, or that it is not.
func (f *feed) judge(name string, err error) {
	reason := ""
	if err != nil {
		reason = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if f.rejected[name] == reason {
		return
	}
	if f.rejected[name] = reason; reason == "" {
		delete(f.rejected, name)
	}
	f.store.Reject(f.key(name).String(), reason)
}

func (f *feed) key(name string) registry.Key { return registry.Key{Kind: f.kind, Name: name} }

// newer reports whether a is a newer resource version than b. Versions that
// are no numbers are not newer than anything.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// same reports whether the Store has the object's value.
func same(s *registry.State, kind registry.Kind, i *item) bool {
	var has any
	var there bool
	switch kind {
	case registry.Node:
		has, there = s.Nodes[i.key()]
	case registry.Namespace:
		has, there = s.Namespaces[i.key()]
	case registry.Pod:
		has, there = s.Pods[i.key()]
	case registry.IPPool:
		has, there = s.Pools[i.key()]
	case registry.SubnetLease:
		has, there = s.Leases[i.key()]
	case registry.AddressClaim:
		has, there = s.Claims[i.key()]
	}
	return there && reflect.DeepEqual(has, i.value)
}

func names(s *registry.State, kind registry.Kind) []string {
	switch kind {
	case registry.Node:
		return keys(s.Nodes)
	case registry.Namespace:
		return keys(s.Namespaces)
	case registry.Pod:
		return keys(s.Pods)
	case registry.IPPool:
		return keys(s.Pools)
	case registry.SubnetLease:
		return keys(s.Leases)
	case registry.AddressClaim:
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
