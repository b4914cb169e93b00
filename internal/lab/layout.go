// SPDX-License-Identifier: Apache-2.0

package lab

import "path/filepath"

// DefaultRoot is the directory that holds the labs of a machine, one directory
// each. It is not under /run/netns, so `ip netns` does not list the lab's
// namespaces and `ip netns delete` cannot hit them.
const DefaultRoot = "/run/weft-lab"

// layout is the directory of one lab; its methods name what is in it.
type layout string

func (l layout) spec() string                { return l.join("spec.json") }
func (l layout) ready() string               { return l.join("ready") }
func (l layout) netnsDir() string            { return l.join("netns") }
func (l layout) netns(machine string) string { return l.join("netns", machine) }
func (l layout) podsDir() string             { return l.join("pods") }
func (l layout) pod(name string) string      { return l.join("pods", name+".json") }
func (l layout) nodesDir() string            { return l.join("nodes") }
func (l layout) record(node string) string   { return l.join("nodes", node+".json") }

func (l layout) node(node string) string        { return l.join(node) }
func (l layout) agentConfig(node string) string { return l.join(node, "agent.yaml") }
func (l layout) agentLog(node string) string    { return l.join(node, "agent.log") }
func (l layout) state(node string) string       { return l.join(node, "state") }
func (l layout) socket(node string) string      { return l.join(node, "state", "agent.sock") }
func (l layout) conflist(node string) string    { return l.join(node, "network.conflist") }
func (l layout) cache(node string) string       { return l.join(node, "cni") }

func (l layout) registry() string            { return l.join("registry") }
func (l layout) pool() string                { return l.join("registry", "pool.yaml") }
func (l layout) manifest(node string) string { return l.join("registry", "nodes", node+".yaml") }
func (l layout) lease(name string) string    { return l.join("registry", "subnetleases", name+".yaml") }

func (l layout) join(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}
