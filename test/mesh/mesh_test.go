// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/lab"
)

// mesh is a lab, with what the test did to it.
type mesh struct {
	*testing.T
	host lab.Host
	name string

	nodes   map[string]lab.Node // where they are now
	moved   map[string]lab.Node // where the lab believes them, if that is elsewhere
	pods    map[string]lab.Pod
	mtu     int // of uplinks
	backend string
	podMTU  int            // as configured; 0: it follows from mtu and backend
	exclude []netip.Prefix // masqueradeExclude of all agents
	// refused are the leases that no node may follow, by name; rejected says
	// of each object that `weft status` must name, on every node, a part of the
	// reason.
	refused  map[string]bool
	rejected map[string]string
	foreign  map[string]set // by node

	mu     sync.Mutex
	agents map[string]*exec.Cmd // that run
}

// up makes a lab with one pod per node, p1 on node1, and foreign objects on
// every node. The agents are the test's own processes from then on.
func up(t *testing.T, s lab.Spec) *mesh {
	t.Helper()
	m := &mesh{
		T: t, host: newHost(t), name: s.Name, backend: "auto", mtu: 1500,
		nodes: map[string]lab.Node{}, moved: map[string]lab.Node{}, pods: map[string]lab.Pod{},
		refused: map[string]bool{}, rejected: map[string]string{}, foreign: map[string]set{},
		agents: map[string]*exec.Cmd{},
	}
	s = s.WithDefaults()
	if err := m.host.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			m.logs()
		}
		if err := m.host.Down(context.WithoutCancel(t.Context()), m.name); err != nil {
			t.Error(err)
		}
	})
	for _, n := range lab.NewTopology(s.Family, s.Nodes, s.Segments).Nodes {
		m.nodes[n.Name] = n
		m.adopt(n.Name)
	}
	for _, n := range m.nodeNames() {
		m.foreign[n] = m.plantForeign(n)
		m.addPod("p"+n[len("node"):], n)
	}
	return m
}

// logs shows the end of each agent's log.
func (m *mesh) logs() {
	for _, n := range m.nodeNames() {
		text, err := os.ReadFile(m.path(n, "agent.log"))
		const most = 2000
		m.Logf("%s: the end of the agent's log (%v):\n%s", n, err, text[max(0, len(text)-most):])
	}
}

func (m *mesh) path(elem ...string) string {
	return filepath.Join(append([]string{m.host.Root, m.name}, elem...)...)
}

func (m *mesh) nodeNames() []string { return slices.Sorted(maps.Keys(m.nodes)) }

// must ends the test at once.
func (m *mesh) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// in runs f in the namespace of a node, a pod or the outside.
func (m *mesh) in(machine string, f func() error) error {
	ns, err := kernel.OpenNetns(m.path("netns", machine))
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(f)
}

// run executes a command in a machine and returns what it says on both its
// outputs.
func (m *mesh) run(machine, program string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := m.in(machine, cmd.Start); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s: %s %v: %w: %s", machine, program, args, err, out.String())
	}
	return out.String(), nil
}

// do executes a command that must succeed.
func (m *mesh) do(machine, program string, args ...string) string {
	m.Helper()
	out, err := m.run(machine, program, args...)
	m.must(err)
	return out
}

func podSpec(name, node string) lab.PodSpec { return lab.PodSpec{Name: name, Node: node} }

// addPod adds a pod. It tries again, as a runtime does, while an agent starts or
// waits for a block.
func (m *mesh) addPod(name, node string) (p lab.Pod) {
	m.Helper()
	m.eventually("pod "+name+" comes", bound, func() (err error) {
		if p, err = m.host.AddPod(m.Context(), m.name, podSpec(name, node)); err != nil {
			m.goodbye(m.Context(), name)
		}
		return err
	})
	m.pods[name] = p
	return p
}

func (m *mesh) deletePod(name string) {
	m.Helper()
	m.must(m.host.DeletePod(m.Context(), m.name, name))
	delete(m.pods, name)
}

func (m *mesh) podsOn(node string) (pods []lab.Pod) {
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		if m.pods[name].Node == node {
			pods = append(pods, m.pods[name])
		}
	}
	return pods
}

func (m *mesh) addNode(segment int) string {
	m.Helper()
	n, err := m.host.AddNode(m.Context(), m.name, segment)
	m.must(err)
	m.nodes[n.Name] = n
	m.adopt(n.Name)
	m.foreign[n.Name] = m.plantForeign(n.Name)
	return n.Name
}

func (m *mesh) removeNode(node string) {
	m.Helper()
	m.must(m.host.RemoveNode(m.name, node))
	for _, p := range m.podsOn(node) {
		delete(m.pods, p.Name)
	}
	delete(m.nodes, node)
	delete(m.foreign, node)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.agents, node)
}

// adopt replaces the lab's agent of a node by one of the test's own.
func (m *mesh) adopt(node string) {
	m.Helper()
	m.must(m.host.KillNode(m.name, node))
	m.must(m.start(node))
}

// start starts a node's agent with the configuration that is there, and does
// not wait for it. It needs no lock of the lab.
func (m *mesh) start(node string) error {
	log, err := os.OpenFile(m.path(node, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(m.host.BinDir, "weft"), "agent", "--config", m.path(node, "agent.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := m.in(node, cmd.Start); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agents[node] = cmd
	return nil
}

// kill ends a node's agent by SIGKILL, whatever anybody is doing, and returns
// when it is gone.
func (m *mesh) kill(nodes ...string) {
	for _, node := range nodes {
		m.mu.Lock()
		cmd := m.agents[node]
		delete(m.agents, node)
		m.mu.Unlock()
		if cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed, which it says
		}
	}
}

// restart starts agents that do not run.
func (m *mesh) restart(nodes ...string) {
	m.Helper()
	for _, node := range nodes {
		m.must(m.start(node))
	}
}

// configure changes the configuration of agents in place: they notice.
func (m *mesh) configure(change func(config map[string]any), nodes ...string) {
	m.Helper()
	for _, node := range nodes {
		file := m.path(node, "agent.yaml")
		text, err := os.ReadFile(file)
		m.must(err)
		config := map[string]any{}
		m.must(yaml.Unmarshal(text, &config))
		change(config)
		text, err = yaml.Marshal(config)
		m.must(err)
		m.write(file, string(text))
	}
}

// network returns the part of a configuration that is about the network.
func network(config map[string]any) map[string]any { return config["network"].(map[string]any) }

// write replaces a file as a whole.
func (m *mesh) write(file, text string) {
	m.Helper()
	m.must(os.WriteFile(file+".new", []byte(text), 0o644))
	m.must(os.Rename(file+".new", file))
}

// eventually polls until done says nothing, and returns how long it took.
func (m *mesh) eventually(what string, within time.Duration, done func() error) time.Duration {
	m.Helper()
	start := time.Now()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done()
		took := time.Since(start)
		switch {
		case err == nil:
			return took
		case took > within:
			m.Fatalf("%s: not within %v: %v", what, within, err)
		}
		select {
		case <-tick.C:
		case <-m.Context().Done():
			m.Fatalf("%s: %v", what, err)
		}
	}
}
