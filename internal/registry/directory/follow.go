// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// follower keeps a Store at what the directory holds. It belongs to one
// goroutine.
type follower struct {
	*Directory
	store    *registry.Store
	index    *index
	identity identity      // of the directory that was read last
	retry    time.Duration // how long to wait when contact is lost
	// busy are the files that somebody has open for writing. The kernel tells
	// of the closing of a file just before it counts a writer less, so that it
	// takes another look; pause is how long after this one.
	busy  map[string]struct{}
	pause time.Duration
	lost  bool // contact, as was logged
	// gone is when files that held a Node were first seen to be gone. Whoever
	// edits one may remove it and write it anew, and without a Node its leases
	// count for nothing.
	gone map[string]time.Time
	// complete: the Store was told that it is synced; since is when reading
	// began, until when it is not.
	complete bool
	since    time.Time
}

// follow feeds the Store until contact is lost.
func (f *follower) follow(ctx context.Context) error {
	w, err := newWatch()
	if err != nil {
		return err
	}
	defer w.file.Close()
	defer context.AfterFunc(ctx, w.interrupt)()
	if err := f.connect(w); err != nil {
		return err
	}
	nextScan := time.Now().Add(f.interval)
	for {
		until := nextScan
		if again := time.Now().Add(f.pause); len(f.busy) > 0 && again.Before(nextScan) {
			until = again
		}
		n, err := w.next(ctx, until)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			n = news{files: maps.Clone(f.busy), all: until.Equal(nextScan)}
			f.pause = min(2*f.pause, lastPause)
		case err != nil:
			return fmt.Errorf("read notifications: %w", err)
		default:
			f.pause = firstPause
		}
		if n.lost {
			return fmt.Errorf("directory %s was deleted, moved away or unmounted", f.path)
		}
		if err := f.look(w, n); err != nil {
			return err
		}
		if n.all {
			nextScan = time.Now().Add(f.interval)
		}
	}
}

// connect reads everything, and has the Store know.
func (f *follower) connect(w *watch) error {
	start := time.Now()
	t, err := openTree(f.path)
	if err != nil {
		return err
	}
	defer t.Close()
	id, err := t.identity()
	if err != nil {
		return err
	}
	if id != f.identity {
		f.index.forgetStats()
	}
	changed := map[string]struct{}{}
	found, err := f.scan(w, t, changed)
	if err != nil {
		return err
	}
	if known := len(f.index.files); found == 0 && known > 0 && id != f.identity {
		return fmt.Errorf("directory %s is another one than before, without any of %d manifests", f.path, known)
	}
	f.identity = id
	f.complete, f.since = false, start
	f.read(t, changed, true)
	f.lost, f.retry = false, firstRetry
	f.log.Info("directory of manifests is read", "path", f.path, "files", len(f.index.files),
		"objects", len(f.index.owner), "rejected", len(f.index.rejected), "took", time.Since(start))
	return nil
}

// look sees to the news, if the directory is still the one that they are of.
func (f *follower) look(w *watch, n news) error {
	t, err := openTree(f.path)
	if err != nil {
		return err
	}
	defer t.Close()
	id, err := t.identity()
	if err != nil {
		return err
	}
	if id != f.identity {
		return fmt.Errorf("directory %s was replaced by another one", f.path)
	}
	if n.all {
		if _, err := f.scan(w, t, n.files); err != nil {
			return err
		}
	}
	f.read(t, n.files, n.all)
	return nil
}

// read reads files and brings the Store up to date.
func (f *follower) read(t tree, changed map[string]struct{}, scanned bool) {
	for names := slices.Sorted(maps.Keys(changed)); len(names) > 0; names = f.index.takeAgain() {
		for _, r := range readAll(t, names) {
			f.take(r, scanned)
		}
	}
	f.index.tell(f.store.Apply, f.reject)
	if now := time.Now(); !f.complete && (len(f.busy) == 0 || now.Sub(f.since) > busyGrace) {
		f.complete = true
		f.store.Synced(now)
	}
}

// take brings the index up to date with what was read.
func (f *follower) take(r reading, scanned bool) {
	delete(f.busy, r.name)
	gone := errors.Is(r.err, fs.ErrNotExist)
	if !gone {
		delete(f.gone, r.name)
	}
	switch {
	case gone && f.spared(r.name, time.Now()):
		f.busy[r.name] = struct{}{} // to be looked at again
	case gone:
		delete(f.gone, r.name)
		f.index.remove(r.name)
	case errors.Is(r.err, errBusy):
		f.busy[r.name] = struct{}{}
		if scanned { // else it is but an instant ago
			f.index.keep(r.name, r.stat, r.err)
		}
	case r.err != nil:
		f.index.keep(r.name, r.stat, r.err)
	default:
		f.trim(r.manifest)
		f.index.put(r.name, r.stat, r.manifest)
	}
}

// trim leaves out what nobody asks for, and what thousands of nodes have.
func (f *follower) trim(m manifest) {
	for i, e := range m.entries {
		if n, is := e.value.(cluster.Node); is && f.node != "" && n.Name != f.node {
			n.Labels = nil
			m.entries[i].value = n
		}
	}
}

// spared reports whether a file that is gone stays in effect for now.
func (f *follower) spared(name string, now time.Time) bool {
	if !f.index.holds(name, registry.Node) {
		return false
	}
	first, known := f.gone[name]
	if !known {
		f.gone[name], first = now, now
	}
	return now.Sub(first) < f.grace
}

// reject tells the Store, and people.
func (f *follower) reject(object, reason string) {
	f.store.Reject(object, reason)
	if reason == "" {
		f.log.Info("object is no longer rejected", "object", object)
	} else {
		f.log.Warn("object is rejected", "object", object, "reason", reason)
	}
}
