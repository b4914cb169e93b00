// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// sizeLimit is what a manifest may have; Kubernetes' own limit for an object
// is 1.5 MiB.
const sizeLimit = 4 << 20

// errBusy: somebody has the file open for writing.
var errBusy = errors.New("is open for writing; it is read when it is closed")

// tree is the directory while it is looked at. It is not held for longer,
// because the kernel tells of the end of a directory only when nobody has it
// open.
type tree struct {
	*os.File
}

func openTree(path string) (tree, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY, 0)
	return tree{f}, err
}

// identity is a directory's own, whatever its name. Inode numbers are used
// again, but hardly in the same nanosecond.
type identity struct {
	major, minor uint32
	inode        uint64
	born         unix.StatxTimestamp // zero on a file system that does not say
}

func (t tree) identity() (identity, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(t.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return identity{}, fmt.Errorf("stat %s: %w", t.Name(), err)
	}
	return identity{st.Dev_major, st.Dev_minor, st.Ino, st.Btime}, nil
}

// open goes through no symbolic link.
func (t tree) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat2(int(t.Fd()), name, &unix.OpenHow{
		Flags:   uint64(unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// stat returns what a file of that name is now: fs.ErrNotExist if there is
// none, or a directory.
func (t tree) stat(name string) (stat, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(t.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			err = fs.ErrNotExist
		}
		return stat{}, fmt.Errorf("stat: %w", err)
	}
	return judgeStat(&st)
}

func judgeStat(st *unix.Stat_t) (stat, error) {
	at := stat{modified: st.Mtim.Nano(), size: st.Size, inode: st.Ino}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if st.Size > sizeLimit {
			return at, fmt.Errorf("has %d bytes; want at most %d", st.Size, sizeLimit)
		}
		return at, nil
	case unix.S_IFDIR:
		return stat{}, fs.ErrNotExist
	case unix.S_IFLNK:
		return at, errors.New("is a symbolic link; want a regular file")
	}
	return at, errors.New("is a FIFO, socket or device; want a regular file")
}

// read returns a file's content and the state that it is in. The state is that
// of no file if another attempt may have another result.
func (t tree) read(name string) ([]byte, stat, error) {
	// Opening a device can do things to it: look first.
	if at, err := t.stat(name); err != nil {
		return nil, at, err
	}
	f, err := t.open(name, 0)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil, stat{}, errBusy
	case errors.Is(err, unix.ELOOP):
		return nil, stat{}, fs.ErrNotExist // what it is in was a directory once
	case err != nil:
		return nil, stat{}, err
	}
	defer f.Close()
	// With a lease until it is closed: nobody gets the file opened for writing
	// meanwhile. Not every file system has leases; then it is read without.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); errors.Is(err, unix.EAGAIN) {
		return nil, stat{}, errBusy
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, stat{}, fmt.Errorf("stat: %w", err)
	}
	at, err := judgeStat(&st)
	if err != nil {
		return nil, at, err
	}
	data := make([]byte, at.size)
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, stat{}, fmt.Errorf("read: %w", err)
	}
	return data[:n], at, nil
}
