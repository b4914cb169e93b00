// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	lockName      = "lock"
	journalPrefix = "journal."
	newSuffix     = ".new"
	asideInfix    = ".corrupt-"
)

// Option changes how a journal is opened.
type Option func(*options)

type options struct{ boot string }

// WithBoot sets the boot id instead of asking the kernel for it.
func WithBoot(id string) Option { return func(o *options) { o.boot = id } }

// place is a journal's place in the file system.
type place struct {
	dir  string
	boot string
}

func (p place) journal() string { return filepath.Join(p.dir, journalPrefix+p.boot) }

// locate finds the boot id. It does not touch the directory.
func locate(dir string, opts []Option) (place, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.boot == "" {
		id, err := bootID()
		if err != nil {
			return place{}, err
		}
		o.boot = id
	}
	if !isBootID(o.boot) {
		return place{}, fmt.Errorf("boot id %q: want letters, digits and '-'", o.boot)
	}
	return place{dir: dir, boot: o.boot}, nil
}

// bootID asks the kernel; see random(4).
func bootID() (string, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	f, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	defer func() { _ = f.close() }()
	b, err := f.read(0, 64)
	if err != nil {
		return "", fmt.Errorf("read the boot id from %s: %w", path, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// isBootID accepts what can be part of a file name and of the header, and has
// no dot: dots separate it from the suffixes.
func isBootID(id string) bool {
	for _, c := range []byte(id) {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && c != '-' {
			return false
		}
	}
	return id != ""
}

// prepareDir makes the directory if it is missing and refuses one in which
// others could put files in our name.
func prepareDir(dir string) error {
	if err := checkDir(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the parent of state directory %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make state directory %s: %w", dir, err)
	}
	return checkDir(dir)
}

// checkDir returns nil, a *DirError, or another error; os.ErrNotExist if there
// is nothing.
func checkDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "stat state directory", Path: dir, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return &DirError{dir, "it is a symbolic link, which whoever may replace it controls: name the directory it leads to"}
	default:
		return &DirError{dir, "it is not a directory: remove it or name another one"}
	}
	if uid := os.Geteuid(); int(st.Uid) != uid && uid != 0 {
		return &DirError{dir, fmt.Sprintf("it belongs to user %d and this process runs as user %d: run as that user", st.Uid, uid)}
	}
	if st.Mode&0o022 != 0 {
		return &DirError{dir, fmt.Sprintf("its mode %04o lets others write into it: chmod go-w", st.Mode&0o7777)}
	}
	return nil
}
