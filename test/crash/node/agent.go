// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Agent is a running weft agent.
type Agent struct {
	cmd   *exec.Cmd
	log   agentLog
	ended chan struct{}
}

// agentLog keeps what the agent says and tells when it is ready.
type agentLog struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
	once  sync.Once
}

// maxLog bounds the memory that a long-lived agent's log takes, in bytes.
const maxLog = 1 << 20

func (l *agentLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() > maxLog {
		l.text.Next(maxLog / 2)
	}
	l.text.Write(p)
	if bytes.Contains(p, []byte("agent ready")) {
		l.once.Do(func() { close(l.ready) })
	}
	return len(p), nil
}

// Log returns the end of what the agent wrote.
func (a *Agent) Log() string {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	return a.log.text.String()
}

// ErrAgentEnded says that the agent ended before it was ready.
var ErrAgentEnded = errors.New("the agent ended before it was ready")

// StartAgent starts an agent with the network section of its configuration
// (YAML or JSON, one line), and waits until it is ready. Garbage is collected
// every gcInterval.
func (n *Node) StartAgent(network string, gcInterval time.Duration, env ...string) (*Agent, error) {
	config := fmt.Sprintf("apiVersion: weft.dev/v1alpha1\nkind: AgentConfiguration\nstateDir: %s\nsocket: %s\nnetwork: %s\ngc: {interval: %s}\n",
		n.StateDir, n.Socket, network, gcInterval)
	path := filepath.Join(n.Dir, "agent.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	a := &Agent{cmd: exec.Command(filepath.Join(Bin(), "weft"), "agent", "--config", path), ended: make(chan struct{})}
	a.log.ready = make(chan struct{})
	a.cmd.Stdout, a.cmd.Stderr = &a.log, &a.log
	a.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	if err := n.Do(a.cmd.Start); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	go func() {
		defer close(a.ended)
		_ = a.cmd.Wait()
	}()
	select {
	case <-a.log.ready:
		return a, nil
	case <-a.ended:
		return a, fmt.Errorf("%w: %s: %s", ErrAgentEnded, a.cmd.ProcessState, a.Log())
	case <-time.After(Limit):
		a.Kill()
		return a, fmt.Errorf("agent ready: %w: %s", errLimit, a.Log())
	}
}

// Kill ends the agent by SIGKILL.
func (a *Agent) Kill() {
	_ = a.cmd.Process.Kill()
	<-a.ended
}

// Stop ends the agent in order.
func (a *Agent) Stop() error {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
		if !a.cmd.ProcessState.Success() {
			return fmt.Errorf("agent: %s: %s", a.cmd.ProcessState, a.Log())
		}
		return nil
	case <-time.After(Limit):
		a.Kill()
		return fmt.Errorf("agent ends on SIGTERM: %w", errLimit)
	}
}

// Killed waits until the agent has ended, and reports whether SIGKILL did it.
func (a *Agent) Killed(limit time.Duration) bool {
	select {
	case <-a.ended:
		ws, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus)
		return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
	case <-time.After(limit):
		return false
	}
}

// Alive reports whether the agent has not ended.
func (a *Agent) Alive() bool {
	select {
	case <-a.ended:
		return false
	default:
		return true
	}
}

// Resources are what a process holds.
type Resources struct {
	RSS     int // KiB
	FDs     int
	Threads int
}

// Resources reads what the agent holds now.
func (a *Agent) Resources() (Resources, error) {
	dir := filepath.Join("/proc", strconv.Itoa(a.cmd.Process.Pid))
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return Resources{}, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Resources{}, err
	}
	r := Resources{FDs: len(fds)}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 1 && fields[0] == "VmRSS:":
			r.RSS, err = strconv.Atoi(fields[1])
		case len(fields) > 1 && fields[0] == "Threads:":
			r.Threads, err = strconv.Atoi(fields[1])
		}
		if err != nil {
			return Resources{}, err
		}
	}
	return r, nil
}
