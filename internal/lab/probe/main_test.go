// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const isolated = "WEFT_PROBE_TEST_ISOLATED"

// TestMain runs the tests in a network namespace of their own, with lo up and
// a second address of each family on it.
func TestMain(m *testing.M) {
	if os.Getenv(isolated) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "run tests in a network namespace of their own (needs root):", err)
		os.Exit(1)
	}
}

// secondAddresses are put on lo besides 127.0.0.1 and ::1.
var secondAddresses = []string{"203.0.113.1/32", "2001:db8::1/128"}

func loUp(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, a := range secondAddresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrReplace(lo, addr); err != nil {
			t.Fatal(err)
		}
	}
}
