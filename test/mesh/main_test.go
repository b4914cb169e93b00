// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/lab"
)

// insideEnv is set in the process that runs the tests.
const insideEnv = "WEFT_MESH_INSIDE"

// TestMain runs the tests as the first process of a mount, network and process
// namespace of their own, with an empty /run: nothing can escape, since all
// processes end with the first.
func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) == "" {
		os.Exit(again())
	}
	if err := furnish(); err != nil {
		fmt.Fprintln(os.Stderr, "furnish the test's own namespaces:", err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// again executes this test binary in namespaces of its own.
func again() int {
	runtime.LockOSThread() // the child dies with the thread that started it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "run in namespaces of our own (needs root):", err)
		return 2
	}
	return 0
}

func furnish() error {
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

// newHost returns the machine with Weft's programs, from WEFT_BIN or bin/.
func newHost(t *testing.T) lab.Host {
	t.Helper()
	bin := os.Getenv("WEFT_BIN")
	if bin == "" {
		bin = filepath.Join("..", "..", "bin")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	return lab.Host{Root: lab.DefaultRoot, BinDir: bin}
}
