// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// searchPath is PATH on hosts. CNI plugins inherit containerd's.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// spawn starts a program that outlives this process, on a host. logfile gets
// what it prints, behind what is there.
func (h *host) spawn(logfile string, stdin *os.File, argv ...string) error {
	out, err := os.OpenFile(logfile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if stdin != nil {
		cmd.Stdin = stdin
	}
	cmd.Dir = "/"
	// The shim and runc are found beside the first program that is started.
	cmd.Env = []string{"HOME=/root", "PATH=" + filepath.Dir(argv[0]) + ":" + searchPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := h.enter(cmd.Start); err != nil {
		return fmt.Errorf("start %s on %s: %w", filepath.Base(argv[0]), h.name, err)
	}
	go cmd.Wait() //nolint:errcheck // reaps it; that it ended is seen by its silence
	return nil
}

// find is the process of a program that runs on the host itself, not in a
// container with a PID namespace of its own. 0 if there is none.
func (h *host) find(program string) (int, error) {
	holder, err := h.pid()
	if err != nil {
		return 0, err
	}
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", holder))
	if err != nil {
		return 0, fmt.Errorf("read PID namespace of host %s: %w", h.name, err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil || exe != program {
			continue
		}
		if its, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/pid")); err == nil && its == space {
			return pid, nil
		}
	}
	return 0, nil
}

// killAndWait kills a process and returns when it has ended: when nothing of it
// is left but, perhaps, what its parent has to reap. Of a holder that is when
// nothing is left of its PID namespace.
func killAndWait(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for the end of process %d: %w", pid, err)
		case n == 0:
			return fmt.Errorf("wait for the end of process %d: still there 30 s after SIGKILL", pid)
		default:
			return nil
		}
	}
}

// await waits until check returns nil. What it returned last is in the error.
func await(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s (%s at most): %w", what, limit, errors.Join(err, last))
	}
	return nil
}

// get fetches an URL from a host's network namespace.
func (h *host) get(ctx context.Context, url string) (string, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return h.dial(ctx, network, address)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("get %s on %s: %w", url, h.name, err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return "", fmt.Errorf("get %s on %s: %w", url, h.name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get %s on %s: expected status 200, found %s: %s", url, h.name, resp.Status, body.String())
	}
	return body.String(), nil
}

// together runs functions at the same time and returns all their errors.
func together(functions ...func() error) error {
	errs := make([]error, len(functions))
	var all sync.WaitGroup
	for i, f := range functions {
		all.Go(func() { errs[i] = f() })
	}
	all.Wait()
	return errors.Join(errs...)
}
