// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readyDeadline bounds the time from the start of an agent until its network
// says by STATUS that it is ready. The agent needs some tens of milliseconds.
const readyDeadline = 10 * time.Second

// ExistsError says that Up found a directory of that name.
type ExistsError struct {
	Name     string
	Complete bool // false: a lab that was left half made, or is being made now
}

func (e *ExistsError) Error() string {
	what := "exists already"
	if !e.Complete {
		what = "is half made, or being made right now"
	}
	return fmt.Sprintf("lab %q %s; `weft lab down --name %s` removes it, `--name` with another name makes one beside it",
		e.Name, what, e.Name)
}

// Up makes a lab and returns when its network is ready for pods. Where it does
// not get that far it removes what it made. An existing directory of that name
// is an ExistsError and is not touched.
func (h Host) Up(ctx context.Context, s Spec) error {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return err
	}
	if err := h.findPrograms(s); err != nil {
		return err
	}
	topo, err := NewTopology(s.Nodes, s.Segments)
	if err != nil {
		return err
	}
	dir := h.layout(s.Name)
	if err := h.makeDir(dir); err != nil {
		if errors.Is(err, os.ErrExist) {
			_, missing := os.Stat(dir.ready())
			return &ExistsError{Name: s.Name, Complete: missing == nil}
		}
		return err
	}
	lock, err := h.lock(s.Name, changing)
	if err != nil {
		return err
	}
	l := &lab{Host: h, l: dir, spec: s, topo: topo, lock: lock}
	defer l.close()
	if err := l.claim(); err != nil {
		return err
	}
	if err := l.build(ctx); err != nil {
		return errors.Join(fmt.Errorf("make lab %q: %w", s.Name, err), l.remove(context.WithoutCancel(ctx)))
	}
	return nil
}

// makeDir makes the lab's directory. The root may be removed by the Down of
// another lab between our making it and using it; then once more.
func (h Host) makeDir(dir layout) error {
	for {
		if err := os.MkdirAll(h.Root, 0o755); err != nil {
			return fmt.Errorf("make lab directory: %w", err)
		}
		err := os.Mkdir(string(dir), 0o755)
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
}

// claim makes sure that the locked directory is still ours to fill: between our
// making and locking it a Down may have removed it and another Up made it anew.
func (l *lab) claim() error {
	entries, err := os.ReadDir(string(l.l))
	if err == nil && len(entries) > 0 {
		_, missing := os.Stat(l.l.ready())
		return &ExistsError{Name: l.spec.Name, Complete: missing == nil}
	}
	return err
}

// findPrograms says before anything is made which program is missing.
func (h Host) findPrograms(s Spec) error {
	var need []string
	if s.agents() {
		need = append(need, "weft")
	}
	if s.Conflist == "" {
		need = append(need, "weft-cni")
		if s.Mode == Thin {
			need = append(need, "weft-ipam")
		}
	}
	var missing []string
	for _, program := range need {
		if _, err := os.Stat(filepath.Join(h.BinDir, program)); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("find %s in %s, where the running program is: not there; run `make build`",
			strings.Join(missing, " and "), h.BinDir)
	}
	return nil
}

func (l *lab) build(ctx context.Context) error {
	dirs := []string{l.l.netnsDir(), l.l.podsDir()}
	for _, n := range l.topo.Nodes {
		dirs = append(dirs, l.l.cache(n.Name)) // the state directory is for the programs to make
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range l.topo.Machines() {
		l.say("%s: network namespace", name)
		if err := newNetns(l.l.netns(name)); err != nil {
			return err
		}
	}
	l.say("links, addresses and routes between them")
	if err := (wiring{l: l.l, t: l.topo}).make(); err != nil {
		return err
	}
	if err := writeJSON(l.l.spec(), l.spec); err != nil {
		return err
	}
	for _, n := range l.topo.Nodes {
		if err := l.startNode(ctx, n); err != nil {
			return err
		}
	}
	return writeFile(l.l.ready(), nil)
}

// startNode gives a node its configuration, starts its agent and waits for the
// network to be ready.
func (l *lab) startNode(ctx context.Context, n Node) error {
	conflist, err := networkConflist(l.l, n.Name, l.spec)
	if err != nil {
		return err
	}
	if err := writeFile(l.l.conflist(n.Name), conflist); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	if !l.spec.agents() {
		return l.waitReady(ctx, n, nil)
	}
	config, err := agentYAML(l.l, n.Name, l.spec.Subnets)
	if err != nil {
		return err
	}
	if err := writeFile(l.l.agentConfig(n.Name), config); err != nil {
		return err
	}
	agent, err := l.startAgent(n)
	if err != nil {
		return err
	}
	return l.waitReady(ctx, n, &agent)
}

// waitReady polls the network's STATUS, as a runtime does. An agent that ended
// meanwhile is reported at once with the end of its log.
func (l *lab) waitReady(ctx context.Context, n Node, agent *process) error {
	r, err := l.runtime(n)
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		statusErr := r.status(ctx)
		if statusErr == nil {
			l.say("%s: network %s is ready", n.Name, r.list.Name)
			return nil
		}
		if agent != nil && !agent.alive() {
			agent.collect()
			return fmt.Errorf("%s: the agent (process %d) ended while starting; the end of its log: %s",
				n.Name, agent.PID, l.logTail(n.Name))
		}
		if agent == nil {
			return fmt.Errorf("%s: status of the network: %w", n.Name, statusErr)
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("%s: wait for the network: %w", n.Name, ctx.Err())
			}
			return fmt.Errorf("%s: the network is not ready after %v: %w; the end of the agent's log: %s",
				n.Name, readyDeadline, statusErr, l.logTail(n.Name))
		case <-tick.C:
		}
	}
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

// startAgent starts the node's agent so that it outlives this command: in a
// session of its own, with its log in a file. A crash before the record is
// written is no loss, Down also looks into the namespace.
func (l *lab) startAgent(n Node) (process, error) {
	log, err := os.OpenFile(l.l.agentLog(n.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return process{}, err
	}
	defer log.Close()
	cmd := command(filepath.Join(l.BinDir, "weft"), "agent", "--config", l.l.agentConfig(n.Name))
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
	return agent, writeFile(l.l.agentPID(n.Name), []byte(agent.String()+"\n"))
}
