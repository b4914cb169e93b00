// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// callLimit bounds every call. No plugin may need this long; a call that does
// is killed and fails its case.
const callLimit = 20 * time.Second

// searchPath is the PATH that plugins get, for those that execute iptables.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Attachment is what a runtime says about one attachment.
type Attachment struct {
	ContainerID, Netns, Ifname string
	Args                       string // CNI_ARGS
}

// Env is an environment: exactly what the plugin gets, besides PATH.
type Env map[string]string

// With returns a copy with one variable set.
func (e Env) With(key, value string) Env {
	e = maps.Clone(e)
	e[key] = value
	return e
}

// Without returns a copy without some variables.
func (e Env) Without(keys ...string) Env {
	e = maps.Clone(e)
	for _, k := range keys {
		delete(e, k)
	}
	return e
}

// Call is one execution of a plugin.
type Call struct {
	Binary         string
	Env            Env
	Stdin          []byte
	Stdout, Stderr []byte
	Code           int // exit code; -1 where a signal ended it
	Took           time.Duration
	TimedOut       bool
}

// String shows the call for a transcript.
func (k *Call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n$")
	for _, key := range slices.Sorted(maps.Keys(k.Env)) {
		if key != "CNI_PATH" {
			fmt.Fprintf(&b, " %s=%q", key, k.Env[key])
		}
	}
	fmt.Fprintf(&b, " %s <<< %s\n", k.Binary, k.Stdin)
	fmt.Fprintf(&b, "exit %d after %s\n", k.Code, k.Took.Round(time.Millisecond))
	if len(k.Stdout) > 0 {
		fmt.Fprintf(&b, "stdout: %s\n", bytes.TrimSpace(k.Stdout))
	}
	if len(k.Stderr) > 0 {
		fmt.Fprintf(&b, "stderr: %s\n", bytes.TrimSpace(k.Stderr))
	}
	return b.String()
}

// env returns the environment of a verb for an attachment.
func (c *C) env(verb string, a Attachment) Env {
	e := Env{
		"CNI_COMMAND":     verb,
		"CNI_CONTAINERID": a.ContainerID,
		"CNI_NETNS":       a.Netns,
		"CNI_IFNAME":      a.Ifname,
		"CNI_PATH":        strings.Join(c.Subject.Path(), ":"),
	}
	if a.Args != "" {
		e["CNI_ARGS"] = a.Args
	}
	return e
}

// Exec runs a binary of the subject in the host's namespace with exactly this
// environment and stdin.
func (c *C) Exec(binary string, env Env, stdin []byte) *Call {
	path, err := c.Subject.find(binary)
	c.Must(err, "find the plugin")
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return c.run(exec.CommandContext(ctx, path), binary, env, stdin)
}

// ExecRedirected is Exec with redirections of the shell, such as "<&-" for file
// descriptor 0 closed, not merely empty.
func (c *C) ExecRedirected(redirections, binary string, env Env, stdin []byte) *Call {
	path, err := c.Subject.find(binary)
	c.Must(err, "find the plugin")
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return c.run(exec.CommandContext(ctx, "/bin/sh", "-c", `exec "$0" `+redirections, path), binary, env, stdin)
}

func (c *C) run(cmd *exec.Cmd, binary string, env Env, stdin []byte) *Call {
	call := &Call{Binary: binary, Env: env, Stdin: stdin}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.Env = []string{"PATH=" + searchPath}
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	// A grandchild that keeps stdout open must not keep us waiting for ever.
	cmd.WaitDelay = callLimit
	begin := time.Now()
	c.Must(c.Host.Do(cmd.Start), "start "+binary)
	err := cmd.Wait()
	call.Took = time.Since(begin)
	call.Stdout, call.Stderr = stdout.Bytes(), stderr.Bytes()
	call.Code = cmd.ProcessState.ExitCode()
	call.TimedOut = call.Took >= callLimit
	c.record(call)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !call.TimedOut {
		c.Errorf("run %s: %v", binary, err)
	}
	return call
}

func (c *C) record(call *Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}
