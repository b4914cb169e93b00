// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bytes of the lock file; see the package documentation.
const (
	byteJournal = 0
	byteOwner   = 1
	byteKeys    = 16
	// keySpace is how many bytes the keys share. A lock must end before 2^63.
	keySpace = 1 << 62
)

// Waiting polls, because the kernel's own wait (F_OFD_SETLKW) cannot be ended
// by a context. A transaction takes a millisecond or less.
const (
	firstWait = 50 * time.Microsecond
	maxWait   = 2 * time.Millisecond
)

// lockFile is one open file description of the lock file: locks taken through
// it never exclude each other, only those of other descriptions.
type lockFile struct {
	file
	dir string
}

func openLock(dir string, flags int) (lockFile, error) {
	f, err := openFile(filepath.Join(dir, lockName), flags)
	return lockFile{file: f, dir: dir}, err
}

func byteLock(kind int16, at int64) unix.Flock_t {
	return unix.Flock_t{Type: kind, Whence: unix.SEEK_SET, Start: at, Len: 1}
}

// try takes a byte and reports whether it got it.
func (l lockFile) try(at int64) (bool, error) {
	for {
		fl := byteLock(unix.F_WRLCK, at)
		err := unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_SETLK, &fl)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
			return false, nil
		default:
			return false, fmt.Errorf("lock byte %d of %s: %w", at, filepath.Join(l.dir, lockName), err)
		}
	}
}

// release gives a byte back. Closing the file would too, but only once no
// child process that was forked meanwhile holds a copy of the descriptor.
func (l lockFile) release(at int64) {
	fl := byteLock(unix.F_UNLCK, at)
	// It cannot fail: unlocking needs no memory when the lock is one byte
	// of its own, and the descriptor is ours.
	_ = unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_SETLK, &fl)
}

// taken reports whether another description holds a byte.
func (l lockFile) taken(at int64) (bool, error) {
	fl := byteLock(unix.F_WRLCK, at)
	if err := unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_GETLK, &fl); err != nil {
		return false, fmt.Errorf("look at lock byte %d of %s: %w", at, filepath.Join(l.dir, lockName), err)
	}
	return fl.Type != unix.F_UNLCK, nil
}

// wait takes a byte as soon as it can. Before each pause it asks giveUp, which
// may be nil.
func (l lockFile) wait(ctx context.Context, at int64, giveUp func() error) error {
	var timer *time.Timer
	for pause := firstWait; ; pause = min(2*pause, maxWait) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if ok, err := l.try(at); ok || err != nil {
			return err
		}
		if giveUp != nil {
			if err := giveUp(); err != nil {
				return err
			}
		}
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// owned returns an *OwnedError if there is an owner.
func (l lockFile) owned() error {
	taken, err := l.taken(byteOwner)
	if err != nil || !taken {
		return err
	}
	return &OwnedError{Dir: l.dir, PID: l.pid()}
}

// pid returns the process id that the owner left in the file, 0 if none. It is
// for messages only: whether there is an owner is told by the lock.
func (l lockFile) pid() int {
	b, err := l.read(0, 32)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// sign leaves this process's id in the file.
func (l lockFile) sign() error {
	if err := l.truncate(0); err != nil {
		return err
	}
	return l.write([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
}

// OwnerAlive reports whether a process owns the state directory at this moment,
// and its id, 0 if that is not known. It takes no lock.
func OwnerAlive(dir string) (pid int, alive bool) {
	l, err := openLock(dir, unix.O_RDONLY)
	if err != nil {
		return 0, false
	}
	defer func() { _ = l.close() }()
	var owned *OwnedError
	if errors.As(l.owned(), &owned) {
		return owned.PID, true
	}
	return 0, false
}
