// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const inside = "WEFT_TEST_INSIDE"

// The test runs itself in a process with mounts and a network of its own.
func TestWritableSysctls(t *testing.T) {
	if os.Getenv(inside) != "" {
		writableSysctls(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWritableSysctls$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestWritableSysctls") {
		t.Fatalf("%v:\n%s", err, out)
	}
}

func writableSysctls(t *testing.T) {
	const forward, own, other = "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/lo/forwarding", "/proc/sys/kernel/hostname"
	if err := WritableSysctls(); err != nil {
		t.Fatalf("where they are writable: %v", err)
	}
	// As a container's runtime does it.
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := errors.Join(unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""), unix.Mount("", "/proc/sys", "", flags, "")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(forward, []byte("1"), 0); !errors.Is(err, unix.EROFS) {
		t.Fatalf("write where it is read-only: %v; the test proves nothing", err)
	}
	for range 2 {
		if err := WritableSysctls(); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{forward, own} {
		for _, value := range []string{"0", "1"} {
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); strings.TrimSpace(string(got)) != value {
				t.Fatalf("%s is %q, %v; want %s", path, got, err, value)
			}
		}
	}
	if err := os.WriteFile(other, []byte("weft"), 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("write %s: %v; want it read-only as before", other, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(netSysctls, &st); err != nil || st.Flags&(unix.ST_NOSUID|unix.ST_NODEV|unix.ST_NOEXEC) != unix.ST_NOSUID|unix.ST_NODEV|unix.ST_NOEXEC {
		t.Errorf("flags %#x, %v: the mount has lost some", st.Flags, err)
	}
	// The process ends with the test: its thread need not go back.
	runtime.LockOSThread()
	// Namespaces that are made later are seen, each by the threads inside.
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("1"), 0); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
}
