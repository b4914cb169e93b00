// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// NoAgentError says that an agent was to be started or ended in a lab that has
// none.
type NoAgentError struct{ Lab string }

func (e *NoAgentError) Error() string {
	return fmt.Sprintf("lab %q is thin: its nodes have no agent", e.Lab)
}

// configure writes what the programs of a node read.
func (l *lab) configure(n Node) error {
	if err := os.MkdirAll(l.l.cache(n.Name), 0o755); err != nil { // the state directory is for the programs to make
		return err
	}
	conflist, err := networkConflist(l.l, n.Name, l.spec)
	if err != nil {
		return err
	}
	if err := writeFile(l.l.conflist(n.Name), conflist); err != nil || !l.spec.agents() {
		return err
	}
	if _, err := os.Stat(l.l.agentConfig(n.Name)); err == nil {
		return nil // whoever plays with the lab may have changed it
	}
	config, err := agentYAML(l.l, n.Name, l.spec.Backend)
	if err != nil {
		return err
	}
	return writeFile(l.l.agentConfig(n.Name), config)
}

// agentCommand is what an agent is started with, after the program.
func (l *lab) agentCommand(node string) []string {
	return []string{"agent", "--config", l.l.agentConfig(node)}
}

// startAgent starts the node's agent so that it outlives this command: in a
// session of its own, with its log in a file.
func (l *lab) startAgent(n Node) (process, error) {
	log, err := os.OpenFile(l.l.agentLog(n.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return process{}, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(l.BinDir, "weft"), l.agentCommand(n.Name)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := startIn(l.l.netns(n.Name), cmd); err != nil {
		return process{}, fmt.Errorf("%s: start agent: %w", n.Name, err)
	}
	agent, ok := readProcess(cmd.Process.Pid)
	if !ok {
		agent = process{PID: cmd.Process.Pid} // ended already: waitReady tells why
	}
	l.say("%s: agent started, process %d, log %s", n.Name, agent.PID, l.l.agentLog(n.Name))
	return agent, nil
}

// agent returns the node's agent, false where none runs. It is the process in
// the node's namespace that was started with its configuration: no record is
// kept that a crash could leave wrong.
func (l *lab) agent(node string) (process, bool, error) {
	id, err := kernel.StatNetns(l.l.netns(node))
	if errors.Is(err, os.ErrNotExist) {
		return process{}, false, nil
	}
	if err != nil {
		return process{}, false, err
	}
	found, err := processesIn(map[kernel.NetnsID]bool{id: true})
	for _, p := range found {
		if endsIn(arguments(p.PID), l.agentCommand(node)) {
			return p, true, nil
		}
	}
	return process{}, false, err
}

func endsIn(args, tail []string) bool {
	return len(args) > len(tail) && slices.Equal(args[len(args)-len(tail):], tail)
}

// arguments returns a process's arguments, the program first; none where it is
// gone.
func arguments(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00")
}

// endAgent ends the node's agent, if it runs, by stop or kill.
func (l *lab) endAgent(node string, end func(process) error) error {
	agent, runs, err := l.agent(node)
	if err != nil {
		return fmt.Errorf("%s: find agent: %w", node, err)
	}
	if !runs {
		l.say("%s: no agent runs", node)
		return nil
	}
	if err := end(agent); err != nil {
		return fmt.Errorf("%s: end agent: %w", node, err)
	}
	l.say("%s: agent ended, process %d", node, agent.PID)
	return nil
}

func (l *lab) agentState(node string) string {
	agent, runs, err := l.agent(node)
	switch {
	case err != nil:
		return err.Error()
	case !runs:
		return "not running"
	}
	return fmt.Sprintf("running (process %d)", agent.PID)
}

// logTail returns the last lines of a node's agent: the directory is removed
// when Up does not succeed, so the error has to carry them.
func (l *lab) logTail(node string) string {
	const keep = 10
	text, err := os.ReadFile(l.l.agentLog(node))
	if err != nil || len(text) == 0 {
		return "(empty)"
	}
	lines := slices.Collect(strings.Lines(string(text)))
	return "\n" + strings.TrimSuffix(strings.Join(lines[max(0, len(lines)-keep):], ""), "\n")
}
