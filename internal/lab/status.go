// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/view"
)

// Status is the state of a lab as its commands see it, not as it should be.
type Status struct {
	Name    string         `json:"name"`
	Mode    Mode           `json:"mode"`
	Dir     string         `json:"dir"`
	Outside []netip.Prefix `json:"outside"` // addresses of the outside host
	Nodes   []NodeStatus   `json:"nodes"`
	Pods    []PodStatus    `json:"pods"`
}

// OK is the text of every verdict that found nothing wrong.
const OK = "ok"

// NodeStatus is one node.
type NodeStatus struct {
	Name    string         `json:"name"`
	Segment string         `json:"segment"`
	Addrs   []netip.Prefix `json:"addresses"`
	Link    string         `json:"link"`    // LinkUp, LinkCut, or why it cannot be told
	Agent   string         `json:"agent"`   // "running (process N)", "not running" or "none" in a thin lab
	Network string         `json:"network"` // verdict of the CNI verb STATUS: "ok", or its error
	Log     string         `json:"log,omitempty"`
	State   string         `json:"stateDir"`
}

// PodStatus is one pod.
type PodStatus struct {
	Pod
	Check string `json:"check"` // verdict of the CNI verb CHECK: "ok", or its error
}

// Healthy reports whether every verdict is good.
func (s Status) Healthy() bool {
	for _, n := range s.Nodes {
		if n.Network != OK || n.Link != LinkUp {
			return false
		}
	}
	for _, p := range s.Pods {
		if p.Check != OK {
			return false
		}
	}
	return true
}

// Status asks every node for STATUS and every pod for CHECK.
func (h Host) Status(ctx context.Context, name string) (Status, error) {
	l, err := h.open(name, reading)
	if err != nil {
		return Status{}, err
	}
	defer l.close()
	s := Status{Name: l.spec.Name, Mode: l.spec.Mode, Dir: string(l.l), Outside: l.topo.Outside, Pods: []PodStatus{}}
	for _, n := range l.topo.Nodes {
		s.Nodes = append(s.Nodes, l.nodeStatus(ctx, n))
	}
	pods, err := l.pods()
	for _, p := range pods {
		s.Pods = append(s.Pods, l.podStatus(ctx, p))
	}
	return s, err
}

func (l *lab) nodeStatus(ctx context.Context, n Node) NodeStatus {
	s := NodeStatus{
		Name: n.Name, Segment: n.Segment, Addrs: n.Addrs,
		Link: l.linkState(n), Agent: "none", State: l.l.state(n.Name),
	}
	if l.spec.agents() {
		s.Agent, s.Log = l.agentState(n.Name), l.l.agentLog(n.Name)
	}
	if err := l.complete(n); err != nil {
		s.Network = err.Error()
		return s
	}
	s.Network = l.verdict(n, func(r *cniRuntime) error { return r.status(ctx) })
	return s
}

func (l *lab) podStatus(ctx context.Context, p Pod) PodStatus {
	s := PodStatus{Pod: p}
	if !p.complete() {
		s.Check = "half made: ADD did not come to its end"
		return s
	}
	node, err := l.topo.Node(p.Node)
	if err != nil {
		s.Check = err.Error()
		return s
	}
	s.Check = l.verdict(node, func(rt *cniRuntime) error { return rt.check(ctx, p) })
	return s
}

func (l *lab) verdict(n Node, ask func(*cniRuntime) error) string {
	rt, err := l.runtime(n)
	if err == nil {
		err = ask(rt)
	}
	if err != nil {
		return err.Error()
	}
	return OK
}

// Write prints the status: as tables of labs, nodes and pods, or whole as JSON
// or YAML.
func (s Status) Write(w io.Writer, f view.Format) error {
	switch f {
	case view.JSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	case view.YAML:
		text, err := yaml.Marshal(s)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	default:
		return s.writeTables(w)
	}
}

// writeTables writes three tables with an empty line between them.
func (s Status) writeTables(w io.Writer) error {
	if err := view.Write(w, view.Table, []Status{s}); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := view.Write(w, view.Table, s.Nodes); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return view.Write(w, view.Table, s.Pods)
}

// Header and Cells make a status the row of a lab.
func (s Status) Header() []string { return []string{"LAB", "MODE", "OUTSIDE", "DIRECTORY"} }

// Cells implements view.Row.
func (s Status) Cells() []string { return []string{s.Name, string(s.Mode), hosts(s.Outside), s.Dir} }

// Header implements view.Row.
func (n NodeStatus) Header() []string {
	return []string{"NODE", "SEGMENT", "ADDRESSES", "LINK", "AGENT", "NETWORK"}
}

// Cells implements view.Row.
func (n NodeStatus) Cells() []string {
	return []string{n.Name, n.Segment, hosts(n.Addrs), oneLine(n.Link), n.Agent, oneLine(n.Network)}
}

// Header implements view.Row.
func (p PodStatus) Header() []string { return append(p.Pod.Header(), "CHECK") }

// Cells implements view.Row.
func (p PodStatus) Cells() []string { return append(p.Pod.Cells(), oneLine(p.Check)) }

// hosts joins addresses without their prefix lengths.
func hosts(prefixes []netip.Prefix) string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.Addr().String())
	}
	return strings.Join(texts, ",")
}

// oneLine keeps a table a table where a plugin's message has several lines.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
