// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// insideEnv marks the process that already runs in namespaces of its own; its
// value is the directory with the reference plugins. tmpEnv is where that
// process keeps its temporary files.
const (
	insideEnv = "WEFT_CONFORMANCE_INSIDE"
	tmpEnv    = "WEFT_CONFORMANCE_TMP"
)

// parallelCases run at a time. Most of a case is waiting for the kernel.
const parallelCases = "6"

// TestMain runs the tests again as a child in private mount, network and
// process namespaces. The machine's own interfaces and files are then out of
// reach of any plugin, however wrong, and when the child ends, however it
// ends, the kernel takes everything back: mounts, namespaces, daemons.
func TestMain(m *testing.M) {
	flag.Parse()
	if refplugins() == "" {
		os.Exit(outside())
	}
	if err := inside(); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// outside builds what the suite needs from the network and the toolchain, and
// starts the child.
func outside() int {
	refplugins, err := buildReference()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 2
	}
	tmp, err := os.MkdirTemp("", "weft-conformance")
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 2
	}
	defer os.Remove(tmp)
	// The child dies with the thread that started it (Pdeathsig).
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"="+refplugins, tmpEnv+"="+tmp)
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
	}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "conformance: run in namespaces of our own (needs root):", err)
		return 2
	}
	return 0
}

// buildReference returns the directory of the reference plugins, which it
// builds at the first time.
func buildReference() (string, error) {
	cmd := exec.Command("../refplugins/build.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the reference plugins: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], nil
}

// privateDirs are where programs leave things.
var privateDirs = []string{"/run", "/var/lib", "/var/tmp", "/dev/shm"}

// inside makes the file system private where programs write, and gives /proc
// and /sys of the new namespaces.
func inside() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	tmp := os.Getenv(tmpEnv)
	for _, dir := range append([]string{tmp}, privateDirs...) {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	for fs, dir := range map[string]string{"proc": "/proc", "sysfs": "/sys"} {
		if err := unix.Mount(fs, dir, fs, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := os.Setenv("TMPDIR", tmp); err != nil {
		return err
	}
	return flag.Set("test.parallel", parallelCases)
}
