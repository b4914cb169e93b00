// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// controlPlane is the name of the host that runs the API server.
const controlPlane = "cp"

// mark is the variable in a holder's environment that names its host: the
// cluster's directory, a slash, and the host's name.
const mark = "WEFT_CLUSTER_HOST="

// setup mounts a host's view of the file system.
//
//go:embed setup.sh
var setup string

// host is a set of namespaces, kept by its holder.
type host struct {
	name string
	dir  string // of the host: root/ has what is bound over stock paths
	id   string // mark's value
	// cgroup is relative to the root of each hierarchy.
	cgroup string
}

func (c *Cluster) host(name string) *host {
	return &host{
		name: name,
		dir:  filepath.Join(c.opts.Dir, "nodes", name),
		id:   filepath.Join(c.opts.Dir, name),

		cgroup: filepath.Join(c.cgroup(), name),
	}
}

// holders are the process ids of a cluster's holders by host.
func holders(dir string) (map[string]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := map[string]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if id, ok := holds(pid); ok && filepath.Dir(id) == dir {
			found[filepath.Base(id)] = pid
		}
	}
	return found, nil
}

// holds reads a process's mark.
func holds(pid int) (string, bool) {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", false // it has ended meanwhile, or is a kernel thread
	}
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if id, ok := strings.CutPrefix(variable, mark); ok {
			return id, true
		}
	}
	return "", false
}

// pid is the holder's.
func (h *host) pid() (int, error) {
	running, err := holders(filepath.Dir(h.id))
	if err != nil {
		return 0, err
	}
	pid, ok := running[h.name]
	if !ok {
		return 0, fmt.Errorf("find host %s: it is not running", h.id)
	}
	return pid, nil
}

// boot starts the holder and mounts the host's file systems. holder is the path
// of the program.
func (h *host) boot(holder string) error {
	for _, sub := range []string{"etc/cni/net.d", "opt/cni/bin", "var/lib/kubelet", "var/lib/containerd", "var/lib/cni", "var/log"} {
		if err := os.MkdirAll(filepath.Join(h.dir, "root", sub), 0o755); err != nil {
			return fmt.Errorf("make directories of host %s: %w", h.name, err)
		}
	}
	if err := makeCgroup(h.cgroup); err != nil {
		return err
	}
	// The holder joins the host's cgroups, mounts, and becomes holder.
	tell, ready, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe to holder of host %s: %w", h.name, err)
	}
	defer tell.Close()
	var problem bytes.Buffer
	cmd := exec.Command("sh", "-euc", setup, "setup", h.dir, h.name, holder)
	cmd.Env = []string{mark + h.id, "PATH=" + searchPath}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{ready}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
	}
	printed, err := os.OpenFile(filepath.Join(h.dir, "setup.log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		ready.Close()
		return fmt.Errorf("open log of host %s: %w", h.name, err)
	}
	defer printed.Close()
	cmd.Stdout, cmd.Stderr = printed, printed
	err = h.inCgroup(cmd.Start)
	ready.Close()
	if err != nil {
		return fmt.Errorf("start holder of host %s: %w", h.name, err)
	}
	go cmd.Wait() //nolint:errcheck // reaps it; how it ended is nobody's concern
	if said, err := io.ReadAll(tell); err != nil || len(said) == 0 {
		_, _ = problem.ReadFrom(io.NewSectionReader(printed, 0, 1<<16))
		return fmt.Errorf("set host %s up: %s", h.name, strings.TrimSpace(problem.String()))
	}
	return nil
}

// onThread runs f on a thread that ends with it. Never on the main thread,
// which would live on in f's namespaces, and in whose name /proc/self speaks.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err := onThread(f)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- f()
		// Still locked: the runtime ends the thread.
	}()
	return <-done
}

// enter runs f in the namespaces of the host. Of the PID namespace the children
// that f starts are part.
func (h *host) enter(f func() error) error {
	pid, err := h.pid()
	if err != nil {
		return err
	}
	// The mount namespace comes last: the others are found in the machine's /proc.
	var files []*os.File
	defer func() {
		for _, file := range files {
			file.Close()
		}
	}()
	for _, ns := range []string{"pid", "uts", "ipc", "net", "cgroup", "mnt"} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil {
			return fmt.Errorf("open namespaces of host %s: %w", h.name, err)
		}
		files = append(files, file)
	}
	return h.inCgroup(func() error {
		// A thread that shares its working directory may not change mounts.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("enter host %s: %w", h.name, err)
		}
		for _, file := range files {
			if err := unix.Setns(int(file.Fd()), 0); err != nil {
				return fmt.Errorf("enter host %s: %s: %w", h.name, file.Name(), err)
			}
		}
		return f()
	})
}

// inCgroup runs f on a thread of its own that is in the host's cgroups, as will
// be the processes that f starts.
func (h *host) inCgroup(f func() error) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	return onThread(func() error {
		for _, dir := range dirs {
			tasks := filepath.Join(dir, h.cgroup, "tasks")
			if err := os.WriteFile(tasks, []byte(strconv.Itoa(unix.Gettid())), 0); err != nil {
				return fmt.Errorf("join cgroup of host %s: %w", h.name, err)
			}
		}
		return f()
	})
}

// exec runs a command on the host to its end and returns its standard output.
func (h *host) exec(ctx context.Context, argv ...string) (string, error) {
	return run(ctx, h, argv...)
}

// run runs a command, on a host or (nil) on the machine, and returns its
// standard output. The error has the standard error.
func run(ctx context.Context, h *host, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// Whoever inherited the pipes must not keep us.
	cmd.WaitDelay = 2 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := cmd.Start
	if h != nil {
		start = func() error { return h.enter(cmd.Start) }
	}
	err := start()
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		where := ""
		if h != nil {
			where = " on " + h.name
		}
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		return stdout.String(), fmt.Errorf("run %s%s: %w: %s", strings.Join(argv, " "), where, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// dial connects from the host's network namespace. The address is a literal one.
func (h *host) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := h.enter(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// kill pulls the plug. A host that is not running is no error.
func (h *host) kill() error {
	running, err := holders(filepath.Dir(h.id))
	if err != nil {
		return err
	}
	pid, ok := running[h.name]
	if !ok {
		return nil
	}
	return killAndWait(pid)
}
