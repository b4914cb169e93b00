// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"path/filepath"

	"weft.dev/weft/test/crash/node"
)

// mode says which program serves the call.
type mode string

const (
	thin      mode = "thin"      // weft-cni by itself
	hostLocal mode = "hostlocal" // weft-cni by itself, addresses from host-local
	thick     mode = "thick"     // the agent
	offline   mode = "offline"   // the shim, because the agent is dead
	ipamOnly  mode = "ipam"      // weft-ipam
)

// scenario is one call in which a process shall die.
type scenario struct {
	mode    mode
	verb    string
	agent   bool // the agent dies; otherwise the plugin
	beside  bool // another pod lives on the node all the time
	compact bool // the journal is long enough to be compacted during the call
	capable bool // the pod has ports of the host, and limits
}

func (s scenario) String() string {
	name := fmt.Sprintf("%s-%s", s.mode, s.verb)
	if s.agent {
		name += "-agent"
	}
	if s.beside {
		name += "-beside"
	}
	if s.compact {
		name += "-compact"
	}
	if s.capable {
		name += "-capable"
	}
	return name
}

// hasAgent reports whether an agent belongs to the node.
func (s scenario) hasAgent() bool { return s.mode == thick || s.mode == offline }

func scenarios() []scenario {
	var all []scenario
	for _, verb := range []string{"ADD", "DEL"} {
		all = append(all,
			scenario{mode: thin, verb: verb},
			scenario{mode: thin, verb: verb, beside: true},
			scenario{mode: thin, verb: verb, beside: true, compact: true},
			scenario{mode: hostLocal, verb: verb},
			scenario{mode: hostLocal, verb: verb, beside: true},
			scenario{mode: thick, verb: verb, beside: true, agent: true},
			scenario{mode: thick, verb: verb, beside: true, agent: true, compact: true},
			scenario{mode: thick, verb: verb, beside: true},
			scenario{mode: offline, verb: verb, beside: true},
			scenario{mode: ipamOnly, verb: verb, beside: true},
			scenario{mode: thin, verb: verb, beside: true, capable: true},
			scenario{mode: thick, verb: verb, beside: true, agent: true, capable: true},
			scenario{mode: offline, verb: verb, beside: true, capable: true},
		)
	}
	return all
}

// next is what happens after the kill; see the package documentation.
type next string

const (
	retry      next = "retry"
	del        next = "del"
	again      next = "again"
	repeat     next = "repeat"
	stayDown   next = "offline"
	abandon    next = "abandon"
	retryAlive next = "retry with the agent back"
)

func (s scenario) nexts() []next {
	switch {
	case s.mode == offline && s.verb == "ADD":
		return []next{retry, retryAlive, del, abandon}
	case s.mode == offline:
		return []next{retry, retryAlive, abandon}
	case s.verb == "ADD" && s.agent:
		return []next{retry, del, repeat, stayDown, abandon}
	case s.verb == "ADD":
		return []next{retry, del, repeat, abandon}
	default:
		return []next{retry, again, abandon}
	}
}

// Addresses of both families, so that every kernel operation is passed.
const (
	ranges = `[[{"subnet":"10.42.0.0/20"}],[{"subnet":"fd42::/112"}]]`
	routes = `[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`
	// agentNetwork is the network section of the agent's configuration.
	agentNetwork = `{"ranges":` + ranges + `,"routes":` + routes + `}`
	// capabilities are what a runtime passes for a pod with ports and limits.
	capabilities = `,"runtimeConfig":{"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"tcp"},{"HostPort":5353,"ContainerPort":53,"Protocol":"udp"}],` +
		`"bandwidth":{"IngressRate":10000000,"IngressBurst":4294967295,"EgressRate":10000000,"EgressBurst":4294967295}}`
	network   = "net"
	bystander = "bystander" // the pod that lives all the time, without capabilities
	ifname    = "eth0"
)

// config returns the plugin's configuration for a container.
func (s scenario) config(n *node.Node, container string, repeated bool) string {
	ipam := fmt.Sprintf(`"stateDir":%q,"ipam":{"type":"weft-ipam","ranges":%s,"routes":%s}`, n.StateDir, ranges, routes)
	switch s.mode {
	case hostLocal:
		ipam = fmt.Sprintf(`"stateDir":%q,"ipam":{"type":"host-local","dataDir":%q,"ranges":%s,"routes":%s}`, n.StateDir, hostLocalDir(n), ranges, routes)
	case thick:
		ipam = fmt.Sprintf(`"stateDir":%q,"socket":%q`, n.StateDir, n.Socket)
	case offline:
		ipam = fmt.Sprintf(`"stateDir":%q,"socket":%q,"offlineAdd":true`, n.StateDir, n.Socket)
	case ipamOnly:
		ipam = fmt.Sprintf(`"ipam":{"type":"weft-ipam","stateDir":%q,"ranges":%s,"routes":%s}`, n.StateDir, ranges, routes)
	}
	if repeated {
		ipam += `,"repeatAdd":"return"`
	}
	if s.capable && container != bystander {
		ipam += capabilities
	}
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"weft-cni",%s}`, network, ipam)
}

func hostLocalDir(n *node.Node) string { return filepath.Join(n.Dir, "hl") }
