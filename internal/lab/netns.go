// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// threadNetns is the network namespace of the calling thread. The more usual
// /proc/self/ns/net is that of the first thread, which need not be the same.
const threadNetns = "/proc/thread-self/ns/net"

// pinned reports whether path is a namespace: after a crash it can be the
// plain file that the namespace was to be mounted on.
func pinned(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// newNetns makes a network namespace and pins it by a bind mount on path, a
// file that must not exist. The namespace belongs to nobody until the mount is
// made, so a crash before that leaves an empty file and no namespace.
func newNetns(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	defer f.Close()
	return onDoomedThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace %s: %w", path, err)
		}
		if err := unix.Mount(threadNetns, path, "none", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("pin network namespace %s: %w", path, err)
		}
		return nil
	})
}

// inNetns runs f on a thread that is inside the namespace at path. What f
// starts, threads or processes, must be started by f's own goroutine.
func inNetns(path string, f func() error) error {
	ns, err := openNetns(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(f)
}

// openNetns adds what to do where the file is no namespace.
func openNetns(path string) (*kernel.Netns, error) {
	ns, err := kernel.OpenNetns(path)
	if not := (*kernel.NotNetnsError)(nil); errors.As(err, &not) {
		return nil, fmt.Errorf("%w; the lab was left half made, run `weft lab down`", err)
	}
	return ns, err
}

// onDoomedThread runs f on a thread that ends with it, so that f may leave it
// in any state; Go destroys a thread whose goroutine ends locked. The first
// thread is spared: it cannot end before the process, and it is the one that
// others see under /proc/<pid>.
func onDoomedThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onDoomedThread(f) // on another one, as long as this one is held
			return
		}
		done <- f()
	}()
	return <-done
}

// unmountBelow unmounts everything at or below dir, newest first. Detaching
// (MNT_DETACH) cannot be refused because a process has the namespace open; the
// kernel frees it with its last user.
func unmountBelow(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mount table: %w", err)
	}
	mounts, err := parseMounts(string(text))
	if err != nil {
		return err
	}
	var errs []error
	below := mountsBelow(mounts, dir)
	for i := len(below) - 1; i >= 0; i-- {
		err := unix.Unmount(below[i].Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", below[i].Point, err))
		}
	}
	return errors.Join(errs...)
}

// removeNetns unpins the namespace and removes the file. It succeeds where
// there is nothing left to do.
func removeNetns(path string) error {
	if err := unmountBelow(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	return nil
}
