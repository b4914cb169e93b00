// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NotFoundError says that there is no lab of that name.
type NotFoundError struct{ Name, Dir string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("lab %q does not exist (no directory %s); `weft lab up --name %s` makes it", e.Name, e.Dir, e.Name)
}

// dirLock is a flock(2) on a lab's directory. It needs no file that would have
// to be removed after the directory, and the kernel drops it when its holder
// dies. The descriptor is not inherited: a child that outlives the command, as
// the agent does, would keep the lock.
type dirLock struct{ f *os.File }

// lockDir waits for the lock. The directory may be removed, and even be made
// anew, while we wait for it; then what we locked is not what the path names,
// and the lock is tried again.
func lockDir(dir string, how int) (*dirLock, error) {
	for {
		f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		held, err1 := f.Stat()
		named, err2 := os.Stat(dir)
		if err1 == nil && err2 == nil && os.SameFile(held, named) {
			return &dirLock{f}, nil
		}
		f.Close()
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (l *dirLock) unlock() { l.f.Close() }
