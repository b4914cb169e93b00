// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// scan adds to changed the names of the files that are not as they were, and
// watches every subdirectory. It returns how many manifests there are.
func (f *follower) scan(w *watch, t tree, changed map[string]struct{}) (found int, err error) {
	f.index.scans++
	for dirs := []string{"."}; len(dirs) > 0; {
		dir := dirs[0]
		entries, err := list(w, t, dir)
		switch {
		case dir != "." && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)):
			// It went while this looked at the directory that it was in.
		case err != nil:
			return 0, err
		}
		dirs = dirs[1:]
		for _, e := range entries {
			switch {
			case !e.IsDir() && isManifest(e.Name()):
				found++
				if name := path.Join(dir, e.Name()); f.index.differs(t, name) {
					changed[name] = struct{}{}
				}
			case e.IsDir() && dir == "." && !strings.HasPrefix(e.Name(), "."):
				dirs = append(dirs, e.Name())
			}
		}
	}
	for _, name := range f.index.unseen() {
		changed[name] = struct{}{}
	}
	return found, nil
}

// list watches a directory first, so that nothing is missed that comes while
// it is read.
func list(w *watch, t tree, dir string) ([]fs.DirEntry, error) {
	if err := w.add(t, dir); err != nil {
		return nil, err
	}
	d, err := t.open(dir, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return entries, nil
}

// reading is a file as it was read.
type reading struct {
	name     string
	stat     stat
	manifest manifest
	err      error
}

// readAll reads files, with all processors if they are many.
func readAll(t tree, names []string) []reading {
	all := make([]reading, len(names))
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(names)); i = next.Add(1) - 1 {
			all[i] = readOne(t, names[i])
		}
	}
	if len(names) < 4 {
		work()
		return all
	}
	var done sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		done.Go(work)
	}
	done.Wait()
	return all
}

func readOne(t tree, name string) reading {
	data, at, err := t.read(name)
	if err != nil {
		return reading{name: name, stat: at, err: err}
	}
	return reading{name: name, stat: at, manifest: parse(name, data)}
}
