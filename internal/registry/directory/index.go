// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"weft.dev/weft/internal/registry"
)

// index knows which file holds which object. It has no objects: those are in
// the Store.
//
// Invariants: the owner of an object is the first by name of the files that
// hold it; rivals has the others, by name, and no empty list.
type index struct {
	scans  uint64 // how many there were
	files  map[string]*file
	owner  map[registry.Key]*file
	rivals map[registry.Key][]*file
	// invalid says why the owner's version of an object is refused.
	invalid map[registry.Key]string
	// rejected is what the Store was told.
	rejected map[string]string

	// What there is to do: tell the Store, and read files that now own an
	// object.
	changes  []registry.Change
	verdicts map[string]string // by object, as in Store.Reject
	again    []string
}

// file is what is known of a file.
type file struct {
	name string
	stat stat
	held []registry.Key
	seen uint64 // number of the last scan that found it
}

// stat tells one state of a file from another; that of no file is zero.
type stat struct {
	modified int64 // Unix time in nanoseconds
	size     int64
	inode    uint64
}

func newIndex() *index {
	return &index{
		files: map[string]*file{}, owner: map[registry.Key]*file{}, rivals: map[registry.Key][]*file{},
		invalid: map[registry.Key]string{}, rejected: map[string]string{}, verdicts: map[string]string{},
	}
}

// holds reports whether a file holds an object of the kind.
func (x *index) holds(name string, kind registry.Kind) bool {
	f := x.files[name]
	return f != nil && slices.ContainsFunc(f.held, func(k registry.Key) bool { return k.Kind == kind })
}

// put takes in what was read of a file.
func (x *index) put(name string, at stat, m manifest) {
	f := x.file(name)
	f.stat = at
	if m.documents == 0 && len(f.held) > 0 && !m.torn {
		m.wrong, m.torn = append(m.wrong, errors.New("has no documents any more")), true
	}
	x.judge("file "+name, errors.Join(m.wrong...))
	before := f.held
	f.held = make([]registry.Key, 0, len(m.entries))
	holds := make(map[registry.Key]bool, len(m.entries))
	for _, e := range m.entries {
		f.held = append(f.held, e.key)
		holds[e.key] = true
		x.claim(f, e)
	}
	for _, k := range before {
		switch {
		case holds[k]:
		case m.torn:
			f.held = append(f.held, k)
		default:
			x.release(f, k)
		}
	}
}

func (x *index) file(name string) *file {
	f := x.files[name]
	if f == nil {
		f = &file{name: name}
		x.files[name] = f
	}
	return f
}

// keep takes in that a file could not be read; what it held stays.
func (x *index) keep(name string, at stat, err error) {
	x.file(name).stat = at
	x.judge("file "+name, err)
}

// differs reports whether a file, which is there, must be read.
func (x *index) differs(t tree, name string) bool {
	f := x.files[name]
	if f == nil {
		return true
	}
	f.seen = x.scans
	now, _ := t.stat(name)
	return now != f.stat || now == stat{}
}

// unseen returns the files that the last scan did not find.
func (x *index) unseen() []string {
	var names []string
	for name, f := range x.files {
		if f.seen != x.scans {
			names = append(names, name)
		}
	}
	return names
}

// forgetStats has the next scan read every file.
func (x *index) forgetStats() {
	for _, f := range x.files {
		f.stat = stat{}
	}
}

// takeAgain returns the files to read again.
func (x *index) takeAgain() []string {
	names := x.again
	x.again = nil
	slices.Sort(names)
	return slices.Compact(names)
}

// remove takes in that a file is gone.
func (x *index) remove(name string) {
	f := x.files[name]
	if f == nil {
		return
	}
	delete(x.files, name)
	x.judge("file "+name, nil)
	for _, k := range f.held {
		x.release(f, k)
	}
}

func (x *index) claim(f *file, e entry) {
	owner := x.owner[e.key]
	switch {
	case owner == nil || owner == f:
	case owner.name < f.name:
		x.addRival(e.key, f)
		x.explain(e.key)
		return
	default:
		x.addRival(e.key, owner)
	}
	x.owner[e.key] = f
	if e.err != nil {
		x.invalid[e.key] = fmt.Sprintf("file %s: %v", f.name, e.err)
	} else {
		delete(x.invalid, e.key)
		x.changes = append(x.changes, registry.Change{Key: e.key, Object: e.value})
	}
	x.explain(e.key)
}

func (x *index) addRival(k registry.Key, f *file) {
	at, there := slices.BinarySearchFunc(x.rivals[k], f, byName)
	if !there {
		x.rivals[k] = slices.Insert(x.rivals[k], at, f)
	}
}

func byName(a, b *file) int { return strings.Compare(a.name, b.name) }

// release lets go of an object. The Store keeps it until the next owner's
// version has been read.
func (x *index) release(f *file, k registry.Key) {
	rivals := x.rivals[k]
	switch {
	case x.owner[k] != f:
		rivals = slices.DeleteFunc(rivals, func(r *file) bool { return r == f })
	case len(rivals) > 0:
		delete(x.invalid, k)
		x.owner[k] = rivals[0]
		x.again = append(x.again, rivals[0].name)
		rivals = rivals[1:]
	default:
		delete(x.invalid, k)
		delete(x.owner, k)
		x.changes = append(x.changes, registry.Change{Key: k})
	}
	if x.rivals[k] = rivals; len(rivals) == 0 {
		delete(x.rivals, k)
	}
	x.explain(k)
}

// explain judges an object by its owner's version and its rivals.
func (x *index) explain(k registry.Key) {
	var reasons []error
	if invalid, is := x.invalid[k]; is {
		reasons = append(reasons, errors.New(invalid))
	}
	for _, r := range x.rivals[k] {
		reasons = append(reasons, fmt.Errorf("file %s: it is in %s already, which comes first", r.name, x.owner[k].name))
	}
	x.judge(k.String(), errors.Join(reasons...))
}

// judge notes that an object is refused, or that it is not.
func (x *index) judge(object string, err error) {
	reason := ""
	if err != nil {
		reason = clip(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	x.verdicts[object] = reason
}

// tell brings the Store up to date.
func (x *index) tell(apply func(...registry.Change), reject func(object, reason string)) {
	apply(x.changes...)
	x.changes = nil
	for object, reason := range x.verdicts {
		if x.rejected[object] == reason {
			continue
		}
		if x.rejected[object] = reason; reason == "" {
			delete(x.rejected, object)
		}
		reject(object, reason)
	}
	x.verdicts = map[string]string{}
}
