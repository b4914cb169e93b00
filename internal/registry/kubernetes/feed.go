// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
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
	seen     string
	ahead    map[string]ahead  // by name
	rejected map[string]string // reasons, by name
}

// ahead is what this node has written or deleted, and what the Store has while
// the reflector has not told it yet.
type ahead struct {
	version string // of the write; of what was deleted, the last one that is known
	deleted string // UID of what was deleted; "": it was written
}

var _ cache.ReflectorStore = (*feed)(nil)

func newFeed(kind registry.Kind, store *registry.Store, complete func()) *feed {
	return &feed{kind: kind, store: store, complete: complete, ahead: map[string]ahead{}, rejected: map[string]string{}}
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(object any) error { return f.Update(object) }

// Update implements cache.ReflectorStore.
func (f *feed) Update(object any) error {
	i := object.(*item)
	return f.told(i, i.UID, func() { f.apply(i) })
}

// Delete implements cache.ReflectorStore. The version is that of the deletion.
func (f *feed) Delete(object any) error {
	i := object.(*item)
	return f.told(i, "", func() { f.remove(i.key()) })
}

// told takes in what the reflector tells of an object. uid is "" if it tells
// that there is none.
func (f *feed) told(i *item, uid types.UID, take func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = i.ResourceVersion
	if !f.overtaken(i.key(), uid, i.ResourceVersion) {
		take()
	}
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
	var news []*item
	var changes []registry.Change
	f.store.View(func(s *registry.State) {
		for _, object := range list {
			i := object.(*item)
			listed[i.key()] = true
			if f.overtaken(i.key(), i.UID, version) {
				continue
			}
			news = append(news, i)
			if i.err == nil && !same(s, f.key(i.key()), i.value) {
				changes = append(changes, registry.Change{Key: f.key(i.key()), Object: i.value})
			}
		}
		for _, name := range s.Names(f.kind) {
			if !listed[name] && !f.overtaken(name, "", version) {
				changes = append(changes, registry.Change{Key: f.key(name)})
			}
		}
	})
	maps.DeleteFunc(f.ahead, func(name string, a ahead) bool { return !listed[name] && !newer(a.version, version) })
	f.store.Apply(changes...)
	for _, i := range news {
		f.judge(i.key(), i.err)
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
	before := f.ahead[i.key()]
	if !newer(i.ResourceVersion, f.seen) || newer(before.version, i.ResourceVersion) || before.isOf(i.UID) {
		return
	}
	f.ahead[i.key()] = ahead{version: i.ResourceVersion}
	f.apply(i)
}

// deleted takes in that the lease with this UID is gone, which may be old news.
// The answer to a deletion has no version. So the UID says what the reflector
// tells of this lease, until it tells of the deletion; a lease of the same name
// that somebody makes afterwards has another UID.
func (f *feed) deleted(name string, uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	there := false
	f.store.View(func(s *registry.State) {
		l, is := s.Leases[name]
		there = is && l.UID == string(uid)
	})
	if !there {
		return // the reflector has told of the deletion, or of another one since
	}
	version := f.seen
	if a, is := f.ahead[name]; is {
		version = a.version
	}
	f.ahead[name] = ahead{version: version, deleted: string(uid)}
	f.remove(name)
}

// overtaken reports whether the Store knows better than what the reflector
// tells of an object: see told.
func (f *feed) overtaken(name string, uid types.UID, version string) bool {
	a, is := f.ahead[name]
	if is && (newer(a.version, version) || a.isOf(uid)) {
		return true
	}
	delete(f.ahead, name)
	return false
}

// isOf reports whether the object with this UID was deleted.
func (a ahead) isOf(uid types.UID) bool { return uid != "" && a.deleted == string(uid) }

// apply puts an object into the Store, unless it has the same already.
func (f *feed) apply(i *item) {
	f.judge(i.key(), i.err)
	if i.err != nil {
		return
	}
	unchanged := false
	f.store.View(func(s *registry.State) { unchanged = same(s, f.key(i.key()), i.value) })
	if !unchanged {
		f.store.Apply(registry.Change{Key: f.key(i.key()), Object: i.value})
	}
}

// remove takes an object out of the Store, if it is there.
func (f *feed) remove(name string) {
	f.judge(name, nil)
	there := false
	f.store.View(func(s *registry.State) { _, there = held(s, f.key(name)) })
	if there {
		f.store.Apply(registry.Change{Key: f.key(name)})
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
