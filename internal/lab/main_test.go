// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Environment of the test program's other lives.
const (
	isolatedEnv = "WEFT_LAB_TEST_ISOLATED"
	helperEnv   = "WEFT_LAB_TEST_HELPER" // what to do, see helper_test.go
)

// TestMain runs the tests as the first process of a mount, network and process
// namespace of their own, with an empty /run: there "the machine is as before"
// can be said exactly, and nothing can escape, since all processes end with
// the first.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(helperEnv) != "":
		os.Exit(helperMain())
	case os.Getenv(isolatedEnv) != "":
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "prepare the tests' namespaces:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolatedEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			fmt.Fprintln(os.Stderr, "run tests in namespaces of their own (needs root):", err)
		}
		os.Exit(1)
	}
}

// furnish makes mounts private and mounts what belongs to the new namespaces.
// It is done once: a fuzzing worker inherits the furnished ones.
func furnish() error {
	if os.Getpid() != 1 {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}
