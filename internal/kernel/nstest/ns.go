// SPDX-License-Identifier: Apache-2.0

package nstest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// NS is a fresh network namespace, empty but for loopback, which is up. It
// ends with the test, unless a process or socket holds it longer.
type NS struct {
	Path string // valid while the test runs, for any process that may look into ours

	fd int
}

const threadNetns = "/proc/thread-self/ns/net"

// New makes a namespace. It needs CAP_SYS_ADMIN.
func New(t testing.TB) *NS {
	t.Helper()
	fd, err := makeNetns()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &NS{Path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), fd: fd}
}

// makeNetns moves the calling thread into a new namespace, opens it, and moves
// back. The thread is not simply thrown away: it may be the first one, which
// stays, and /proc/self would show its namespace for that of the process.
func makeNetns() (int, error) {
	runtime.LockOSThread()
	home, err := unix.Open(threadNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(home)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return -1, err
	}
	fd, err := unix.Open(threadNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = setUp("lo")
	}
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		return -1, back // and the thread stays locked, so that nobody else gets it
	}
	runtime.UnlockOSThread()
	return fd, err
}

func setUp(ifname string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(ifname)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// FD returns the descriptor that pins the namespace. It stays the NS's own.
func (n *NS) FD() int { return n.fd }

// Do runs fn inside the namespace, on the goroutine of the caller, so that fn
// may end the test. Sockets that fn opens stay inside for good; goroutines
// that it starts do not run inside. Calls nest.
func (n *NS) Do(fn func()) {
	runtime.LockOSThread()
	home, err := unix.Open(threadNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		panic(fmt.Sprintf("open own network namespace: %v", err))
	}
	defer unix.Close(home)
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("enter %s: %v", n.Path, err))
	}
	defer func() {
		if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("leave %s: %v", n.Path, err)) // every later test would run in the wrong place
		}
		runtime.UnlockOSThread()
	}()
	fn()
}
