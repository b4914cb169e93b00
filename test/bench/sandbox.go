// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// places are the directories that a run needs.
type places struct {
	Work string // made for this run: programs in bin, everything volatile in run
	Weft string // weft, weft-cni, weft-ipam
	Ref  string // the reference plugins
}

func (p places) nothing() string  { return filepath.Join(p.Work, "bin", "nothing") }
func (p places) pingpong() string { return filepath.Join(p.Work, "bin", "pingpong") }
func (p places) run() string      { return filepath.Join(p.Work, "run") }

// insideEnv marks the process that is in namespaces of its own already; its
// value is the three directories.
const insideEnv = "WEFT_BENCH_INSIDE"

func insidePlaces() (places, bool) {
	parts := strings.Split(os.Getenv(insideEnv), string(filepath.ListSeparator))
	if len(parts) != 3 {
		return places{}, false
	}
	return places{Work: parts[0], Weft: parts[1], Ref: parts[2]}, true
}

// outside prepares what needs the toolchain and runs this program again as the
// first process of a process namespace: when it ends, or this one does, the
// kernel kills whatever it started. It returns the report.
func outside(ctx context.Context) (report []byte, err error) {
	p, err := prepare(ctx)
	if p.Work != "" {
		defer func() { err = errors.Join(err, os.RemoveAll(p.Work)) }()
	}
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{write} // descriptor 3
	cmd.Env = append(os.Environ(), insideEnv+"="+strings.Join([]string{p.Work, p.Weft, p.Ref}, string(filepath.ListSeparator)))
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    true, // an interrupt at the terminal is this process's to handle
	}
	err = cmd.Start()
	write.Close()
	if err != nil {
		return nil, fmt.Errorf("run in namespaces of our own (needs root): %w", err)
	}
	report, err = io.ReadAll(read)
	err = errors.Join(err, cmd.Wait())
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // that the child was killed for it is no news
	}
	return report, err
}

// prepare finds or builds the programs.
func prepare(ctx context.Context) (p places, err error) {
	if p.Weft, err = weftBin(); err != nil {
		return p, err
	}
	if p.Ref, err = lastLine(ctx, "test/refplugins/build.sh"); err != nil {
		return p, fmt.Errorf("build the reference plugins: %w", err)
	}
	if p.Work, err = os.MkdirTemp("", "weft-bench-"); err != nil {
		return p, err
	}
	if err := os.MkdirAll(p.run(), 0o755); err != nil {
		return p, err
	}
	for _, program := range []string{p.nothing(), p.pingpong()} {
		name := filepath.Base(program)
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "weft.dev/weft/test/bench/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return p, fmt.Errorf("build %s: %w: %s", name, err, out)
		}
	}
	return p, nil
}

// weftBin is where `make build` puts the binaries, or $WEFT_BIN.
func weftBin() (string, error) {
	dir := os.Getenv("WEFT_BIN")
	if dir == "" {
		dir = "bin"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"weft", "weft-cni", "weft-ipam"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("find the binaries: %w; run `make build` at the root of the repository", err)
		}
	}
	return dir, nil
}

func lastLine(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, command)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], nil
}

// settleIn makes the file system private where anything writes: /run (the lock
// of iptables) and the directory of this run, both in memory.
func settleIn(p places) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range []string{"/run", p.run()} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	for fs, dir := range map[string]string{"proc": "/proc", "sysfs": "/sys"} {
		if err := unix.Mount(fs, dir, fs, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}
