// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// insideEnv marks the process that runs in namespaces of its own; its value is
// the directory with the binaries.
const insideEnv = "WEFT_NODE_INSIDE"

// Root is where everything that tests make lives: a tmpfs that nobody else sees.
const Root = "/run/n"

// Bin returns the directory with the binaries that Run had built.
func Bin() string { return os.Getenv(insideEnv) }

// Run builds the binaries with the build tags given, runs the tests in private
// namespaces, and returns the exit status. It needs root.
func Run(m *testing.M, tags string) int {
	if Bin() != "" {
		if err := inside(); err != nil {
			fmt.Fprintln(os.Stderr, "set up the test's own namespaces:", err)
			return 2
		}
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "weft-node-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }() // in the directory for temporary files
		err = build(dir, tags)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return again(dir)
}

// build makes the three programs as `make build` does, but with tags.
func build(dir, tags string) error {
	for name, pkg := range map[string]string{"weft-cni": "weft-cni", "weft": "weft"} {
		cmd := exec.Command("go", "build", "-trimpath", "-tags", tags, "-o", filepath.Join(dir, name), "weft.dev/weft/cmd/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return os.Link(filepath.Join(dir, "weft-cni"), filepath.Join(dir, "weft-ipam"))
}

// again executes this test binary in namespaces of its own.
func again(dir string) int {
	runtime.LockOSThread() // the child dies with the thread that started it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"="+dir)
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

func inside() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return os.Mkdir(Root, 0o755)
}
