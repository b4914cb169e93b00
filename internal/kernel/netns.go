// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// NetnsID identifies a network namespace while it exists (nsfs device and
// inode). The kernel may give the inode of a namespace that is gone to a new
// one, so it is a key only together with something that pins the namespace.
type NetnsID struct{ Dev, Ino uint64 }

// String returns the form that readlink on /proc/PID/ns/net shows.
func (id NetnsID) String() string { return "net:[" + strconv.FormatUint(id.Ino, 10) + "]" }

// Netns is an open network namespace. It stays alive until Close, even if its
// path goes. It is safe for concurrent use; operations inside it take turns.
type Netns struct {
	Path string // how the caller names it; for messages

	id    NetnsID
	fd    int
	close sync.Once

	mu   sync.Mutex
	conn *conn // rtnetlink socket inside, opened when first needed; nil: none
}

// threadNetns is the namespace of the calling thread. Not /proc/self: that is
// the thread-group leader, which need not be the thread that we run on.
const threadNetns = "/proc/thread-self/ns/net"

// OpenNetns opens the network namespace bound to path. Where the path leads to
// anything else it fails with *NotNetnsError, and nothing is opened: no fifo
// blocks, no device notices. A missing path wraps fs.ErrNotExist.
func OpenNetns(path string) (*Netns, error) {
	// O_PATH refers to the object without opening it.
	ref, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %q: %w", path, err)
	}
	defer unix.Close(ref)
	if err := verifyNsfs(ref, path); err != nil {
		return nil, err
	}
	// Through the reference, so that what was verified is what gets opened.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(ref), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %q: %w", path, err)
	}
	return NetnsFromFD(fd, path)
}

// NetnsFromFD takes over a file descriptor, received for example over a unix
// socket, and verifies that it is a network namespace. The descriptor belongs
// to the result; on error it is closed. The path serves messages only.
func NetnsFromFD(fd int, path string) (*Netns, error) {
	n, err := netnsOf(fd, path)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	unix.CloseOnExec(fd)
	return n, nil
}

func netnsOf(fd int, path string) (*Netns, error) {
	if err := verifyNsfs(fd, path); err != nil {
		return nil, err
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE) // Linux 4.11
	if err != nil {
		return nil, fmt.Errorf("ask the kind of namespace %q: %w", path, err)
	}
	if kind != unix.CLONE_NEWNET {
		return nil, &NotNetnsError{Path: path, Found: namespaceKind(kind)}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat network namespace %q: %w", path, err)
	}
	return &Netns{Path: path, id: idOf(&st), fd: fd}, nil
}

// verifyNsfs says what the descriptor is if it is not a file of nsfs, the file
// system that all namespaces, and only they, live on.
func verifyNsfs(fd int, path string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err == nil && int64(fs.Type) == unix.NSFS_MAGIC {
		return nil
	} else if err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("inspect %q: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("inspect %q: %w", path, err)
	}
	return &NotNetnsError{Path: path, Found: fileKind(st.Mode)}
}

func fileKind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFCHR:
		return "character device"
	case unix.S_IFBLK:
		return "block device"
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFREG:
		return "regular file" // also what a pinned namespace leaves behind when it is unmounted
	default:
		return "anonymous file"
	}
}

func namespaceKind(flag int) string {
	names := map[int]string{
		unix.CLONE_NEWNS: "mount", unix.CLONE_NEWUTS: "uts", unix.CLONE_NEWIPC: "ipc", unix.CLONE_NEWPID: "pid",
		unix.CLONE_NEWUSER: "user", unix.CLONE_NEWCGROUP: "cgroup", unix.CLONE_NEWTIME: "time",
	}
	if name, ok := names[flag]; ok {
		return name + " namespace"
	}
	return fmt.Sprintf("namespace of unknown kind %#x", flag)
}

// StatNetns returns the identity of what path leads to, without opening it:
// enough to compare with the recorded identity of a sandbox. It does not
// verify that it is a network namespace. A missing path wraps fs.ErrNotExist.
func StatNetns(path string) (NetnsID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return NetnsID{}, fmt.Errorf("stat network namespace %q: %w", path, err)
	}
	return idOf(&st), nil
}

func idOf(st *unix.Stat_t) NetnsID { return NetnsID{Dev: uint64(st.Dev), Ino: st.Ino} }

// ID returns the identity of the namespace.
func (n *Netns) ID() NetnsID { return n.id }

// FD returns the file descriptor, which stays the Netns' own.
func (n *Netns) FD() int { return n.fd }

// IsHost reports whether the namespace is that of the caller: a sandbox that
// shares the host's network must never be configured.
func (n *Netns) IsHost() bool {
	own, err := StatNetns(threadNetns)
	return err == nil && own == n.id
}

// Close releases the namespace. It may be called again.
func (n *Netns) Close() error {
	var err error
	n.close.Do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.hangUp()
		err = unix.Close(n.fd)
	})
	if err != nil {
		return fmt.Errorf("close network namespace %q: %w", n.Path, err)
	}
	return nil
}

// with lends fn an rtnetlink socket inside the namespace. The socket stays
// there: only opening it needs a switch of namespace, and one ADD opens one.
func (n *Netns) with(fn func(c *conn) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn == nil {
		err := n.Do(func() (err error) {
			n.conn, err = dial(unix.NETLINK_ROUTE)
			return err
		})
		if err != nil {
			n.conn = nil
			return fmt.Errorf("sandbox %s: %w", n.Path, err)
		}
	}
	err := fn(n.conn)
	if !reusable(err) {
		n.hangUp()
	}
	return err
}

func (n *Netns) hangUp() {
	if n.conn != nil {
		n.conn.close()
		n.conn = nil
	}
}

// Do runs fn on an operating system thread that is inside the namespace while
// fn runs. fn must not start goroutines that rely on it: they run elsewhere.
// A thread that cannot be brought back is never used again.
func (n *Netns) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the function ended its goroutine") // overwritten unless fn calls runtime.Goexit
		defer func() { done <- err }()
		err = n.visit(fn)
	}()
	return <-done
}

// visit locks the goroutine to its thread, and leaves it locked if the thread
// is spoilt: when a locked goroutine ends, the runtime ends its thread too.
func (n *Netns) visit(fn func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open(threadNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %q: %w", n.Path, err)
	}
	defer unix.Close(home)
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %q: %w", n.Path, err)
	}
	defer func() {
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}
