// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// file is an open file. It is a bare descriptor rather than an *os.File because
// a short-lived process opens two of them per transaction and each call into
// the kernel counts.
type file struct{ fd int }

const noFile = -1

// openFile opens a regular file. It does not follow a symbolic link in the last
// part of the path: the directory is ours, and we never make one.
func openFile(path string, flags int) (file, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NOCTTY, 0o600)
		switch {
		case err == nil:
			return file{fd}, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ELOOP):
			return file{noFile}, fmt.Errorf("open %s: it is a symbolic link; remove it", path)
		default:
			return file{noFile}, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// identity tells one file from another, and how long it is.
type identity struct {
	dev, ino uint64
	size     int64
	links    uint64
}

func (i identity) sameFile(j identity) bool { return i.dev == j.dev && i.ino == j.ino }

func identityOf(st *unix.Stat_t) identity {
	return identity{dev: st.Dev, ino: st.Ino, size: st.Size, links: uint64(st.Nlink)}
}

func (f file) identity() (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return identity{}, fmt.Errorf("stat the journal: %w", err)
	}
	return identityOf(&st), nil
}

// identify looks a path up; found is false if nothing is there.
func identify(path string) (id identity, found bool, err error) {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case err == nil:
		return identityOf(&st), true, nil
	case errors.Is(err, unix.ENOENT):
		return identity{}, false, nil
	default:
		return identity{}, false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
}

// read returns the bytes from offset up to size, or fewer if the file ends
// before.
func (f file) read(offset, size int64) ([]byte, error) {
	if size <= offset {
		return nil, nil
	}
	buf := make([]byte, size-offset)
	n := 0
	for n < len(buf) {
		got, err := unix.Pread(f.fd, buf[n:], offset+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		if got == 0 {
			break
		}
		n += got
	}
	return buf[:n], nil
}

// mapped returns the bytes up to size as a mapping that is never undone. It
// spares a short-lived process the copy and, what costs more, the page faults
// of fresh memory: 0.1 ms instead of 1.5 ms for 3 MB.
//
// Parts of it end up in the state and outlive the transaction, so it must stay.
// It is safe because what has been a complete line is never cut off or changed
// in place (see the package's invariants); nothing else of it is looked at
// after the transaction.
func (f file) mapped(size int64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(f.fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map the journal: %w", err)
	}
	return b, nil
}

// write writes all of b by one write(2). On a short write the file holds a part
// of b.
func (f file) write(b []byte, offset int64) error {
	for {
		n, err := unix.Pwrite(f.fd, b, offset)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("write the journal: %w", err)
		case n < len(b):
			return fmt.Errorf("write the journal: %d of %d bytes written, the file system is probably full: %w", n, len(b), io.ErrShortWrite)
		}
		return nil
	}
}

func (f file) truncate(size int64) error {
	for {
		err := unix.Ftruncate(f.fd, size)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("truncate the journal to %d bytes: %w", size, err)
		}
		return nil
	}
}

func (f *file) close() error {
	if f.fd == noFile {
		return nil
	}
	fd := f.fd
	f.fd = noFile
	return unix.Close(fd)
}
