// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// agent is a running `weft agent`.
type agent struct {
	cmd    *exec.Cmd
	socket string
	ended  chan struct{}

	mu    sync.Mutex
	calls map[string]float64 // "ADD container": milliseconds
	last  string             // line of its log that is no answered call
}

// startAgent runs an agent, in the network namespace of that path unless it is
// empty, and waits until it listens. dir is its state directory; more goes into
// its configuration.
func startAgent(p places, dir, netns string, more object) (*agent, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &agent{socket: filepath.Join(dir, "agent.sock"), ended: make(chan struct{}), calls: map[string]float64{}}
	settings := object{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AgentConfiguration", "stateDir": dir, "socket": a.socket,
		"log": object{"format": "json"},
	}
	maps.Copy(settings, more)
	config, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	file := dir + ".yaml" // JSON is YAML
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	argv := []string{filepath.Join(p.Weft, "weft"), "agent", "--config", file}
	if netns != "" {
		argv = append([]string{"nsenter", "--net=" + netns}, argv...)
	}
	a.cmd = exec.Command(argv[0], argv[1:]...)
	stderr, err := a.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go a.listen(stderr)
	return a, await(30*time.Second, "start the agent", func() (bool, error) {
		select {
		case <-a.ended:
			return false, fmt.Errorf("it ended: %s", a.lastLine())
		default:
		}
		conn, err := net.Dial("unix", a.socket)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
}

// listen reads the log until the agent ends.
func (a *agent) listen(log io.Reader) {
	a.read(log)
	_ = a.cmd.Wait() // how it ended is told by whoever misses it
	close(a.ended)
}

func (a *agent) read(log io.Reader) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct {
			Msg       string  `json:"msg"`
			Verb      string  `json:"verb"`
			Container string  `json:"container"`
			MS        float64 `json:"ms"`
		}
		err := json.Unmarshal(lines.Bytes(), &line)
		a.mu.Lock()
		if err == nil && line.Msg == "call served" {
			a.calls[line.Verb+" "+line.Container] = line.MS
		} else {
			a.last = lines.Text()
		}
		a.mu.Unlock()
	}
}

func (a *agent) lastLine() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// took returns what the agent logged of a call that has been answered, in
// milliseconds. The line is written before the answer, but read by another
// goroutine.
func (a *agent) took(verb, container string) (ms float64, err error) {
	key := verb + " " + container
	err = await(5*time.Second, "find the agent's log line of "+key, func() (found bool, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		ms, found = a.calls[key]
		delete(a.calls, key)
		return found, nil
	})
	return ms, err
}

// stop ends the agent in an orderly way.
func (a *agent) stop() error {
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-a.ended:
		return nil
	case <-time.After(10 * time.Second):
		return errors.Join(errors.New("the agent did not end within 10 s of SIGTERM"), a.cmd.Process.Kill())
	}
}

// memory is what a process occupies, in MiB.
type memory struct {
	RSS float64 // VmRSS of proc(5): all resident pages
	PSS float64 // pages shared with others counted in part
}

func (a *agent) memory() (memory, error) {
	dir := filepath.Join("/proc", strconv.Itoa(a.cmd.Process.Pid))
	rss, err := kibibytes(filepath.Join(dir, "status"), "VmRSS:")
	if err != nil {
		return memory{}, err
	}
	pss, err := kibibytes(filepath.Join(dir, "smaps_rollup"), "Pss:")
	return memory{RSS: rss / 1024, PSS: pss / 1024}, err
}

// kibibytes reads a line such as "VmRSS:     1234 kB".
func kibibytes(file, label string) (float64, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == label && fields[2] == "kB" {
			return strconv.ParseFloat(fields[1], 64)
		}
	}
	return 0, fmt.Errorf("%s: no line %q in kB", file, label)
}
