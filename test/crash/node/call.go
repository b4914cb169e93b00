// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Call is one execution of a plugin.
type Call struct {
	Verb, ContainerID, Netns, Ifname string
	Config                           string   // standard input
	Binary                           string   // "": weft-cni
	Env                              []string // besides the CNI variables and PATH
}

// Outcome is how a call ended.
type Outcome struct {
	Call           Call
	Code           int            // exit status; -1 where a signal ended it
	Signal         syscall.Signal // 0: none
	Stdout, Stderr string
	CNICode        int // of the error object
}

// OK reports success.
func (o Outcome) OK() bool { return o.Code == 0 }

func (o Outcome) String() string {
	return fmt.Sprintf("%s %s: exit %d signal %d\nstdout: %s\nstderr: %s", o.Call.Verb, o.Call.ContainerID, o.Code, o.Signal, o.Stdout, o.Stderr)
}

// Addresses returns the addresses of a successful ADD's result, sorted.
func (o Outcome) Addresses() ([]netip.Addr, error) {
	var r struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal([]byte(o.Stdout), &r); err != nil {
		return nil, fmt.Errorf("decode the result %q: %w", o.Stdout, err)
	}
	var addrs []netip.Addr
	for _, ip := range r.IPs {
		addrs = append(addrs, ip.Address.Addr())
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs, nil
}

// Running is a call under way.
type Running struct {
	call           Call
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	limit          *time.Timer
}

// Start executes a plugin in the host's namespace.
func (n *Node) Start(c Call) (*Running, error) {
	name := c.Binary
	if name == "" {
		name = "weft-cni"
	}
	r := &Running{call: c, cmd: exec.Command(Bin() + "/" + name)}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = strings.NewReader(c.Config), &r.stdout, &r.stderr
	r.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"CNI_COMMAND=" + c.Verb, "CNI_CONTAINERID=" + c.ContainerID, "CNI_NETNS=" + c.Netns,
		"CNI_IFNAME=" + c.Ifname, "CNI_PATH=" + n.CNIPath,
	}, c.Env...)
	// A delegate that outlives its killed parent must not keep us waiting.
	r.cmd.WaitDelay = Limit
	if err := n.Do(r.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// No call may hang: one that does is killed, and fails its test as killed.
	r.limit = time.AfterFunc(2*Limit, r.Kill)
	return r, nil
}

// Kill sends SIGKILL. A process that has ended already is no error.
func (r *Running) Kill() { _ = r.cmd.Process.Kill() }

// Wait returns the outcome.
func (r *Running) Wait() Outcome {
	_ = r.cmd.Wait() // the state says all that matters
	r.limit.Stop()
	o := Outcome{Call: r.call, Code: r.cmd.ProcessState.ExitCode(), Stdout: r.stdout.String(), Stderr: r.stderr.String()}
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		o.Signal = ws.Signal()
	}
	if o.Code > 0 {
		var e struct {
			Code int `json:"code"`
		}
		if json.Unmarshal([]byte(o.Stdout), &e) == nil {
			o.CNICode = e.Code
		}
	}
	return o
}

// Call executes a plugin and waits for it.
func (n *Node) Call(c Call) (Outcome, error) {
	r, err := n.Start(c)
	if err != nil {
		return Outcome{}, err
	}
	return r.Wait(), nil
}
