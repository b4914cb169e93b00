// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// daemonSpec is a daemon to run: its command, and the socket by which it is
// known to be ready.
type daemonSpec struct {
	Argv   []string
	Socket string
}

type daemon struct {
	cmd    *exec.Cmd
	output lockedBuffer
	ended  chan struct{}
}

// lockedBuffer takes the daemon's output while a failing case may read it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// weftAgent writes the agent's configuration and returns its command.
func weftAgent(n *Network) (*daemonSpec, error) {
	config := asJSON(Object{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AgentConfiguration",
		"stateDir": n.StateDir, "socket": n.Socket(),
		"network": Object{"ranges": n.Ranges, "routes": n.Routes},
	})
	path := n.c.Path("agent.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return &daemonSpec{Argv: []string{filepath.Join(weftBin(), "weft"), "agent", "--config", path}, Socket: n.Socket()}, nil
}

// Start starts the network's daemon and waits until it answers. It does
// nothing for a subject without one.
func (n *Network) Start() {
	c := n.c
	if c.Subject.Daemon == nil {
		return
	}
	spec, err := c.Subject.Daemon(n)
	c.Must(err, "configure the daemon")
	d := &daemon{cmd: exec.Command(spec.Argv[0], spec.Argv[1:]...), ended: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = &d.output, &d.output
	d.cmd.Env = []string{"PATH=" + searchPath}
	c.Must(c.Host.Do(d.cmd.Start), "start the daemon")
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait()
	}()
	n.daemon = d
	c.Cleanup(func() { d.kill() })
	if !c.Until(10*time.Second, func() bool { return d.dead() || answers(spec.Socket) }) || d.dead() {
		c.Fatalf("set up: the daemon does not listen at %s: %s", spec.Socket, d.output.String())
	}
}

func answers(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// Stop ends the daemon in an orderly way.
func (n *Network) Stop() {
	if n.daemon == nil {
		return
	}
	_ = n.daemon.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.daemon.ended:
	case <-time.After(10 * time.Second):
		n.daemon.kill()
		n.c.Errorf("the daemon did not end within 10 s of SIGTERM: %s", n.daemon.output.String())
	}
}

// Kill ends the daemon as a crash does.
func (n *Network) Kill() {
	if n.daemon != nil {
		n.daemon.kill()
	}
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}

func (d *daemon) dead() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// Until polls until cond holds or the limit is over, and says whether it held.
func (c *C) Until(limit time.Duration, cond func() bool) bool { return until(limit, cond) }

func until(limit time.Duration, cond func() bool) bool {
	deadline := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			return cond()
		}
	}
	return true
}

// settle is how long something may take that a plugin may do after it has
// answered: the removal of interfaces in batches.
//
// Some 30 ms is usual; the rest is for machines that do other things as well.
const settle = 4 * time.Second

// Eventually is Until with settle, and records a failure.
func (c *C) Eventually(what string, cond func() bool) {
	if !c.Until(settle, cond) {
		c.Errorf("%s: not within %s", what, settle)
	}
}

// String shows the daemon's log, for transcripts.
func (d *daemon) String() string { return fmt.Sprintf("daemon: %s", d.output.String()) }
