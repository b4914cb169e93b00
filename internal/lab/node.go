// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// nodeRecord is what the lab keeps of a node, in a file that is written before
// anything of the node exists and removed after everything of it.
type nodeRecord struct {
	Node
	// HalfMade is set while AddNode or RemoveNode is not done with the node.
	HalfMade bool `json:"halfMade,omitempty"`
}

// NodeHalfMadeError says that a command that made or removed the node was
// interrupted.
type NodeHalfMadeError struct{ Node string }

func (e *NodeHalfMadeError) Error() string {
	return fmt.Sprintf("%s is half made; `weft lab node remove %s` removes it", e.Node, e.Node)
}

// nodes reads the records of all nodes, half made ones included.
func (l *lab) nodes() ([]Node, error) {
	paths, err := filepath.Glob(l.l.record("*"))
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var all []Node
	for _, path := range paths {
		var r nodeRecord
		if err := readJSON(path, &r); err != nil {
			return nil, err
		}
		all = append(all, r.Node)
	}
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Number, b.Number) })
	return all, nil
}

// complete verifies that a node is whole.
func (l *lab) complete(n Node) error {
	var r nodeRecord
	if err := readJSON(l.l.record(n.Name), &r); err != nil {
		return err
	}
	if r.HalfMade {
		return &NodeHalfMadeError{Node: n.Name}
	}
	return nil
}

// completed records that a node is whole.
func (l *lab) completed(n Node) error { return writeJSON(l.l.record(n.Name), nodeRecord{Node: n}) }

// makeNode makes a machine: its namespace, connected to its segment, and in a
// thick lab the Node object.
func (l *lab) makeNode(n Node) error {
	l.say("%s: machine on %s, addresses %s", n.Name, n.Segment, hosts(n.Addrs))
	if err := writeJSON(l.l.record(n.Name), nodeRecord{Node: n, HalfMade: true}); err != nil {
		return err
	}
	if err := newNetns(l.l.netns(n.Name)); err != nil {
		return err
	}
	if err := l.connect(n); err != nil {
		return err
	}
	if l.spec.agents() {
		l.say("%s: registered", n.Name)
		text, err := nodeYAML(n, newUID())
		if err != nil {
			return err
		}
		return writeFile(l.l.manifest(n.Name), text)
	}
	return nil
}

// AddNode makes a further node, with the least number that is free, and returns
// when its network is ready. Segment counts from 1; 0 takes them in turn. Where
// it does not get that far it removes what it made.
func (h Host) AddNode(ctx context.Context, name string, segment int) (Node, error) {
	l, err := h.open(name, changing)
	if err != nil {
		return Node{}, err
	}
	defer l.close()
	if !l.spec.agents() {
		return Node{}, &NoAgentError{Lab: name}
	}
	number := l.topo.freeNumber()
	if number > MaxNodes {
		return Node{}, fmt.Errorf("add node: lab %q has %d nodes, more have no address", name, MaxNodes)
	}
	if segment == 0 {
		segment = inTurn(number, l.spec.Segments)
	}
	if segment < 1 || segment > l.spec.Segments {
		return Node{}, fmt.Errorf("add node: segment %d: want 1 to %d", segment, l.spec.Segments)
	}
	n := placeNode(l.spec.Family, number, segment)
	err = l.makeNode(n)
	if err == nil {
		err = l.startNodes(ctx, n)
	}
	if err == nil {
		err = l.waitSync(ctx, l.topo.Nodes) // the others know the way to it
	}
	if err == nil {
		err = l.completed(n)
	}
	if err != nil {
		return Node{}, errors.Join(fmt.Errorf("add %s: %w", n.Name, err), l.removeNode(n))
	}
	return n, nil
}

// RemoveNode makes a node disappear as a machine does that burns: nobody on it
// can say goodbye. Its pods are gone, no DEL is called for them. Then its Node
// object is deleted, as an operator does, and with it its leases, as Kubernetes
// does. It also removes a node that is half made.
func (h Host) RemoveNode(name, node string) error {
	return h.onNode(name, node, func(l *lab, n Node) error { return l.removeNode(n) })
}

// removeNode goes on from wherever AddNode, or an earlier call of itself, was
// interrupted. The record goes last.
func (l *lab) removeNode(n Node) error {
	if err := writeJSON(l.l.record(n.Name), nodeRecord{Node: n, HalfMade: true}); err != nil {
		return err
	}
	if err := l.disconnect(n); err != nil {
		return fmt.Errorf("remove %s: %w", n.Name, err)
	}
	if err := l.endAgent(n.Name, process.kill); err != nil {
		return fmt.Errorf("remove %s: %w", n.Name, err)
	}
	pods, err := l.pods()
	if err != nil {
		return fmt.Errorf("remove %s: %w", n.Name, err)
	}
	for _, p := range pods {
		if p.Node == n.Name {
			l.say("%s: pod %s is gone", n.Name, p.Name)
			if err := errors.Join(l.removeMachine(p.Name), os.Remove(l.l.pod(p.Name))); err != nil {
				return fmt.Errorf("remove %s: %w", n.Name, err)
			}
		}
	}
	if err := l.removeMachine(n.Name); err != nil {
		return fmt.Errorf("remove %s: %w", n.Name, err)
	}
	l.say("%s: machine is gone", n.Name)
	if err := l.l.unregister(n.Name); err != nil {
		return fmt.Errorf("remove %s: %w", n.Name, err)
	}
	l.say("%s: unregistered, with its leases", n.Name)
	return errors.Join(os.RemoveAll(l.l.node(n.Name)), os.Remove(l.l.record(n.Name)))
}

// removeMachine ends what runs in a namespace and removes it.
func (l *lab) removeMachine(name string) error {
	path := l.l.netns(name)
	return errors.Join(stopAllIn(path), removeNetns(path))
}

// StartNode starts a node's agent and returns when its network is ready. An
// agent that runs is left alone.
func (h Host) StartNode(ctx context.Context, name, node string) error {
	return h.onAgent(name, node, func(l *lab, n Node) error {
		if err := l.complete(n); err != nil {
			return err
		}
		agent, runs, err := l.agent(n.Name)
		switch {
		case err != nil:
			return err
		case runs:
			l.say("%s: the agent runs already, process %d", n.Name, agent.PID)
			return l.waitNetwork(ctx, []Node{n}, map[string]process{n.Name: agent})
		}
		return l.startNodes(ctx, n)
	})
}

// StopNode ends a node's agent as a service manager does: SIGTERM, and SIGKILL
// if that does not help. The machine and its pods stay.
func (h Host) StopNode(name, node string) error {
	return h.onAgent(name, node, func(l *lab, n Node) error { return l.endAgent(n.Name, process.stop) })
}

// KillNode ends a node's agent by SIGKILL. The machine and its pods stay.
func (h Host) KillNode(name, node string) error {
	return h.onAgent(name, node, func(l *lab, n Node) error { return l.endAgent(n.Name, process.kill) })
}

func (h Host) onAgent(name, node string, f func(*lab, Node) error) error {
	return h.onNode(name, node, func(l *lab, n Node) error {
		if !l.spec.agents() {
			return &NoAgentError{Lab: name}
		}
		return f(l, n)
	})
}

// onNode changes a node of a lab, which must be named.
func (h Host) onNode(name, node string, f func(*lab, Node) error) error {
	l, err := h.open(name, changing)
	if err != nil {
		return err
	}
	defer l.close()
	if node == "" {
		return errors.New("no node given")
	}
	n, err := l.topo.Node(node)
	if err != nil {
		return err
	}
	return f(l, n)
}
