// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Host says where a machine keeps its labs and which programs they run. The
// zero value is not usable; NewHost gives the usual one.
type Host struct {
	// Root holds one directory per lab. Its file system needs to take bind
	// mounts, and the path at most 40 bytes: the agent's socket is below it,
	// and a socket's path has 108 at most (unix(7)).
	Root string
	// BinDir holds weft, weft-cni and weft-ipam.
	BinDir string
	// Progress is told each step in one line, if it is not nil.
	Progress func(string)
}

// NewHost returns the host with labs under DefaultRoot and the programs found
// beside the running one.
func NewHost() (Host, error) {
	self, err := os.Executable()
	if err != nil {
		return Host{}, fmt.Errorf("find own executable: %w", err)
	}
	return Host{Root: DefaultRoot, BinDir: filepath.Dir(self)}, nil
}

func (h Host) say(format string, args ...any) {
	if h.Progress != nil {
		h.Progress(fmt.Sprintf(format, args...))
	}
}

func (h Host) layout(name string) layout { return layout(filepath.Join(h.Root, name)) }

// lab is an existing lab, locked for as long as the value is in use.
type lab struct {
	Host
	l    layout
	spec Spec
	topo Topology
	lock *dirLock
}

func (l *lab) close() { l.lock.unlock() }

// access is how a command holds a lab.
type access int

const (
	reading  access = unix.LOCK_SH
	changing access = unix.LOCK_EX
)

// IncompleteError says that a lab's directory exists but Up never came to its
// end there.
type IncompleteError struct{ Name string }

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("lab %q was left half made; `weft lab down --name %s` removes it", e.Name, e.Name)
}

// open locks a complete lab and reads what it was made from. The errors are
// NotFoundError and IncompleteError, besides those of the file system.
func (h Host) open(name string, how access) (*lab, error) {
	lock, err := h.lock(name, how)
	if err != nil {
		return nil, err
	}
	l := &lab{Host: h, l: h.layout(name), lock: lock}
	if err := l.load(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (h Host) lock(name string, how access) (*dirLock, error) {
	if err := validateLabel("lab name", name); err != nil {
		return nil, err
	}
	dir := string(h.layout(name))
	lock, err := lockDir(dir, int(how))
	if errors.Is(err, os.ErrNotExist) {
		return nil, &NotFoundError{Name: name, Dir: dir}
	}
	return lock, err
}

func (l *lab) load() error {
	name := filepath.Base(string(l.l))
	if _, err := os.Stat(l.l.ready()); err != nil {
		return &IncompleteError{Name: name}
	}
	if err := readJSON(l.l.spec(), &l.spec); err != nil {
		return fmt.Errorf("lab %q: %w", name, err)
	}
	l.topo = NewTopology(l.spec.Family, 0, l.spec.Segments)
	var err error
	if l.topo.Nodes, err = l.nodes(); err != nil {
		return fmt.Errorf("lab %q: %w", name, err)
	}
	return nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// writeJSON writes the file whole or not at all: under another name first,
// renamed when complete.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writeFile(path, append(text, '\n'))
}

func writeFile(path string, text []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, text, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
