// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"sigs.k8s.io/yaml"
)

// The types below are the lab's own copies of what it writes, not the parsers'
// types: the lab is a user of the file formats, and a field that is renamed by
// mistake must make it fail.

type subnetRange struct {
	Subnet netip.Prefix `json:"subnet"`
}

// rangeSets makes each subnet a set of its own: one address out of each set.
func rangeSets(subnets []netip.Prefix) [][]subnetRange {
	var sets [][]subnetRange
	for _, p := range subnets {
		sets = append(sets, []subnetRange{{Subnet: p}})
	}
	return sets
}

type agentConfiguration struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	NodeName   string       `json:"nodeName"`
	StateDir   string       `json:"stateDir"`
	Cluster    agentCluster `json:"cluster"`
	Network    agentNetwork `json:"network"`
}

type agentCluster struct {
	Directory string `json:"directory"`
}

type agentNetwork struct {
	Backend agentBackend `json:"backend"`
}

type agentBackend struct {
	Type Backend `json:"type"`
}

// agentYAML returns the configuration file of a node's agent.
func agentYAML(l layout, node string, b Backend) ([]byte, error) {
	text, err := yaml.Marshal(agentConfiguration{
		APIVersion: "weft.dev/v1alpha1",
		Kind:       "AgentConfiguration",
		NodeName:   node,
		StateDir:   l.state(node),
		Cluster:    agentCluster{Directory: l.registry()},
		Network:    agentNetwork{Backend: agentBackend{Type: b}},
	})
	if err != nil {
		return nil, fmt.Errorf("write configuration of %s's agent: %w", node, err)
	}
	return text, nil
}

type confList struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Plugins    []any  `json:"plugins"`
}

// capabilities of the plugin that the lab makes use of.
var capabilities = map[string]bool{"ips": true}

// thickPlugin names the agent's socket, and its state directory for the calls
// that the plugin serves by itself while the agent is down.
type thickPlugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	StateDir     string          `json:"stateDir"`
	Socket       string          `json:"socket"`
}

type thinPlugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	StateDir     string          `json:"stateDir"`
	IPMasq       bool            `json:"ipMasq"`
	IPAM         thinIPAM        `json:"ipam"`
}

type thinIPAM struct {
	Type   string          `json:"type"`
	Ranges [][]subnetRange `json:"ranges"`
	Routes []routeDst      `json:"routes"`
}

type routeDst struct {
	Dst netip.Prefix `json:"dst"`
}

// networkConflist returns the network configuration list that the node's
// container runtime reads.
func networkConflist(l layout, node string, s Spec) ([]byte, error) {
	if s.Conflist != "" {
		return []byte(s.Conflist), nil
	}
	var plugin any = thickPlugin{Type: "weft-cni", Capabilities: capabilities, StateDir: l.state(node), Socket: l.socket(node)}
	if s.Mode == Thin {
		plugin = thinPlugin{
			Type: "weft-cni", Capabilities: capabilities, StateDir: l.state(node), IPMasq: true,
			IPAM: thinIPAM{Type: "weft-ipam", Ranges: rangeSets(s.Subnets), Routes: defaultRoutes(s.Subnets)},
		}
	}
	text, err := json.MarshalIndent(confList{CNIVersion: "1.1.0", Name: Network, Plugins: []any{plugin}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write network configuration of %s: %w", node, err)
	}
	return append(text, '\n'), nil
}

// defaultRoutes returns a default route for each family that has a subnet: the
// plugin rightly refuses a route of a family without an address.
func defaultRoutes(subnets []netip.Prefix) []routeDst {
	var routes []routeDst
	var has4, has6 bool
	for _, p := range subnets {
		has4, has6 = has4 || p.Addr().Is4(), has6 || p.Addr().Is6()
	}
	if has4 {
		routes = append(routes, routeDst{netip.PrefixFrom(netip.IPv4Unspecified(), 0)})
	}
	if has6 {
		routes = append(routes, routeDst{netip.PrefixFrom(netip.IPv6Unspecified(), 0)})
	}
	return routes
}
