// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
)

// notNamespaces makes one of each thing that is no network namespace.
func notNamespaces(t *testing.T) map[string]string {
	dir := t.TempDir()
	file, fifo, socket := filepath.Join(dir, "file"), filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	link := filepath.Join(dir, "link")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := errors.Join(os.WriteFile(file, nil, 0o600), unix.Mkfifo(fifo, 0o600), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		file: "regular file", fifo: "fifo", socket: "socket", dir: "directory", link: "directory",
		"/dev/null":          "character device",
		"/proc/self/ns/mnt":  "mount namespace",
		"/proc/self/ns/uts":  "uts namespace",
		"/proc/self/ns/user": "user namespace",
		"/proc/self/ns/pid":  "pid namespace",
		"/proc/self/status":  "regular file",
	}
}

func TestOpenNetnsSaysWhatItFound(t *testing.T) {
	for path, want := range notNamespaces(t) {
		ns, err := kernel.OpenNetns(path)
		var not *kernel.NotNetnsError
		if !errors.As(err, &not) || not.Found != want || not.Path != path {
			t.Errorf("%s: namespace %v, error %v, want %q", path, ns, err, want)
		}
	}
}

func TestMissingNetns(t *testing.T) {
	dir := t.TempDir()
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), dangling); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing"), dangling, "/proc/999999999/ns/net", ""} {
		if _, err := kernel.OpenNetns(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open %q: %v, want fs.ErrNotExist", path, err)
		}
		if _, err := kernel.StatNetns(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat %q: %v, want fs.ErrNotExist", path, err)
		}
	}
}

func TestNetnsIdentity(t *testing.T) {
	a, b := nstest.New(t), nstest.New(t)
	first, again, other := openNetns(t, a.Path), openNetns(t, a.Path), openNetns(t, b.Path)
	if first.ID() != again.ID() || first.ID() == other.ID() || first.ID() == (kernel.NetnsID{}) {
		t.Errorf("ids %v %v %v", first.ID(), again.ID(), other.ID())
	}
	if id, err := kernel.StatNetns(a.Path); err != nil || id != first.ID() {
		t.Errorf("stat: %v, error %v, want %v", id, err, first.ID())
	}
	own := openNetns(t, "/proc/self/ns/net")
	if !own.IsHost() || first.IsHost() {
		t.Errorf("IsHost: own %v, sandbox %v", own.IsHost(), first.IsHost())
	}
	a.Do(func() { // seen from inside, the sandbox is the caller's own
		if own.IsHost() || !first.IsHost() {
			t.Errorf("inside: IsHost: outer %v, sandbox %v", own.IsHost(), first.IsHost())
		}
	})
}

func TestNetnsSurvivesItsPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ns")
	if err := os.Symlink(nstest.New(t).Path, path); err != nil {
		t.Fatal(err)
	}
	ns := openNetns(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestNetnsFromFD passes a descriptor over a unix socket.
func TestNetnsFromFD(t *testing.T) {
	n := nstest.New(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(n.FD(), int(null.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, 64)
	_, length, _, _, err := unix.Recvmsg(pair[1], make([]byte, 1), oob, 0)
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:length])
	if err != nil || len(msgs) != 1 {
		t.Fatalf("%d control messages, error %v", len(msgs), err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 2 {
		t.Fatalf("descriptors %v, error %v", fds, err)
	}
	ns, err := kernel.NetnsFromFD(fds[0], "from the shim")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if id, err := kernel.StatNetns(n.Path); err != nil || id != ns.ID() {
		t.Errorf("id %v, want %v, error %v", ns.ID(), id, err)
	}
	if flags, err := unix.FcntlInt(uintptr(ns.FD()), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, error %v: a child process would inherit it", flags, err)
	}
	var not *kernel.NotNetnsError
	if _, err := kernel.NetnsFromFD(fds[1], "from the shim"); !errors.As(err, &not) || not.Found != "character device" {
		t.Errorf("error %v, want NotNetnsError", err)
	}
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_GETFD, 0); err == nil {
		t.Error("the refused descriptor was not closed")
	}
}

func TestDo(t *testing.T) {
	n := nstest.New(t)
	ns := openNetns(t, n.Path)
	boom := errors.New("boom")
	err := ns.Do(func() error {
		if id, err := kernel.StatNetns("/proc/thread-self/ns/net"); err != nil || id != ns.ID() {
			t.Errorf("fn runs in %v, error %v, want %v", id, err, ns.ID())
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("error %v, want that of the function", err)
	}
	if err := ns.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("a function that ended its goroutine counts as success")
	}
	for range 50 { // no thread is left inside
		done := make(chan bool)
		go func() { done <- ns.IsHost() }()
		if <-done {
			t.Fatal("a goroutine found itself inside the namespace")
		}
	}
	if err := errors.Join(ns.Close(), ns.Close()); err != nil {
		t.Errorf("close twice: %v", err)
	}
	if err := ns.Do(func() error { return nil }); err == nil {
		t.Error("a closed namespace was entered")
	}
}
