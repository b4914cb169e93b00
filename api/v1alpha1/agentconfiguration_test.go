// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"strings"
	"testing"
	"time"
)

const minimal = `
apiVersion: weft.dev/v1alpha1
kind: AgentConfiguration
network:
  ranges: [[{subnet: 10.42.0.0/20}], [{subnet: "fd00:42::/64"}]]
`

func TestDefaults(t *testing.T) {
	c, err := ParseAgentConfiguration([]byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	if c.StateDir != "/run/weft" || c.Socket != "/run/weft/agent.sock" || !*c.Network.Masquerade ||
		time.Duration(*c.Network.Cooldown) != 30*time.Second || time.Duration(*c.GC.Interval) != time.Minute ||
		c.Log != (LogConfiguration{Level: "info", Format: "text"}) {
		t.Errorf("defaults %+v", c)
	}
	if len(c.Network.Routes) != 2 || c.Network.Routes[0].Dst.String() != "0.0.0.0/0" || c.Network.Routes[1].Dst.String() != "::/0" {
		t.Errorf("default routes %v", c.Network.Routes)
	}
}

func TestPathsHaveOneSpelling(t *testing.T) {
	c, err := ParseAgentConfiguration([]byte(strings.Replace(minimal, "network:", "stateDir: /run//weft/\nnetwork:", 1)))
	if err != nil || c.StateDir != "/run/weft" || c.Socket != "/run/weft/agent.sock" {
		t.Errorf("state directory %q, socket %q, %v", c.StateDir, c.Socket, err)
	}
}

func TestEverythingCanBeSet(t *testing.T) {
	c, err := ParseAgentConfiguration([]byte(`
apiVersion: weft.dev/v1alpha1
kind: AgentConfiguration
stateDir: /var/lib/weft
socket: /run/other.sock
network:
  ranges:
    - - subnet: 10.0.0.0/24
        rangeStart: 10.0.0.10
        rangeEnd: 10.0.0.99
        gateway: 10.0.0.254
        exclude: [10.0.0.32/28]
  routes: [{dst: 10.0.0.0/8, mtu: 1400, priority: 7, table: 100, scope: 0, advmss: 1300}]
  mtu: 1450
  masquerade: false
  cooldown: 5s
gc: {interval: 2s}
log: {level: debug, format: json}
`))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := c.Network.Pool()
	if err != nil || pool.Sets[0].Size() != 90-16 {
		t.Errorf("pool %v, %v", pool, err)
	}
	r := c.Network.Routes[0]
	if len(c.Network.Routes) != 1 || r.MTU != 1400 || r.AdvMSS != 1300 || r.Priority != 7 || *r.Table != 100 || *r.Scope != 0 {
		t.Errorf("routes %+v", c.Network.Routes)
	}
	if *c.Network.Masquerade || c.Network.MTU != 1450 || c.Socket != "/run/other.sock" || time.Duration(*c.GC.Interval) != 2*time.Second {
		t.Errorf("configuration %+v", c)
	}
}

const clustered = `
apiVersion: weft.dev/v1alpha1
kind: AgentConfiguration
nodeName: node1
cluster: {directory: /cluster}
network: {}
`

func TestClusterDefaults(t *testing.T) {
	c, err := ParseAgentConfiguration([]byte(clustered))
	if err != nil {
		t.Fatal(err)
	}
	want := BackendConfiguration{Type: "auto", VNI: 119, Port: 4789, ChecksumOffload: "auto"}
	if c.Network.Backend != want || time.Duration(*c.Cluster.LeaseIdleAfter) != 10*time.Minute || c.Network.Routes != nil {
		t.Errorf("defaults %+v, %+v", c.Cluster, c.Network)
	}
}

func TestNodeNameDefaultsToTheHostName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseAgentConfiguration([]byte(strings.Replace(clustered, "nodeName: node1\n", "", 1)))
	if c.NodeName != strings.ToLower(host) {
		t.Errorf("node name %q of host %q, %v", c.NodeName, host, err)
	}
}

// One configuration for all nodes must not give them one name.
func TestNodeNameOfAnotherNode(t *testing.T) {
	t.Setenv("NODE_NAME", "node1")
	for name, want := range map[string]bool{"": true, "node1": true, "node2": false} {
		_, err := ParseAgentConfiguration([]byte(`{"apiVersion": "weft.dev/v1alpha1", "kind": "AgentConfiguration", "nodeName": "` + name + `", "cluster": {"kubernetes": {}}}`))
		if good := err == nil; good != want || err != nil && !strings.Contains(err.Error(), `this is node "node1"`) {
			t.Errorf("nodeName %q: %v", name, err)
		}
	}
}

func TestClusterRefused(t *testing.T) {
	cases := map[string]struct{ from, to, want string }{
		"ranges too":            {"network: {}", "network: {ranges: [[{subnet: 10.0.0.0/24}]]}", "network.ranges: are given, and cluster too"},
		"node without cluster":  {"cluster: {directory: /cluster}\nnetwork: {}", "network: {ranges: [[{subnet: 10.0.0.0/24}]]}", "nodeName"},
		"node name":             {"node1", "Node_1", `nodeName: "Node_1"`},
		"directory":             {"/cluster", "cluster", "cluster.directory"},
		"idle time":             {"/cluster", "/cluster, leaseIdleAfter: 10ms", "cluster.leaseIdleAfter: is 10ms"},
		"backend":               {"network: {}", "network: {backend: {type: bgp}}", `network.backend.type: is "bgp"`},
		"vni":                   {"network: {}", "network: {backend: {vni: 16777216}}", "network.backend.vni"},
		"port":                  {"network: {}", "network: {backend: {port: 65536}}", "network.backend.port"},
		"offload":               {"network: {}", "network: {backend: {checksumOffload: maybe}}", "network.backend.checksumOffload"},
		"loopback address":      {"network: {}", "network: {nodeAddresses: [127.0.0.1]}", "network.nodeAddresses[0]"},
		"two of a family":       {"network: {}", "network: {nodeAddresses: [192.0.2.1, 192.0.2.2]}", "second one of its family"},
		"host bits in excluded": {"network: {}", "network: {masqueradeExclude: [10.0.0.1/8]}", "it should be 10.0.0.0/8"},
		"mtu":                   {"network: {}", "network: {mtu: 20}", "no pod could be attached"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(clustered, c.from, c.to, 1)
			if text == clustered {
				t.Fatal("the case changes nothing")
			}
			_, err := ParseAgentConfiguration([]byte(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	cases := map[string]struct{ from, to, want string }{
		"unknown key":         {"kind:", "knd: x\nkind:", "knd"},
		"repeated key":        {"kind:", "kind: x\nkind:", "kind"},
		"other version":       {"v1alpha1", "v9", `apiVersion: is "weft.dev/v9", want "weft.dev/v1alpha1"`},
		"other kind":          {"AgentConfiguration", "Other", `kind: is "Other"`},
		"no ranges":           {`[[{subnet: 10.42.0.0/20}], [{subnet: "fd00:42::/64"}]]`, "[]", "network.ranges"},
		"overlapping ranges":  {`"fd00:42::/64"`, "10.42.8.0/24", "network.ranges"},
		"host bits in subnet": {"10.42.0.0/20", "10.42.0.1/20", "10.42.0.0/20"},
		"relative path":       {"network:", "stateDir: run\nnetwork:", "stateDir"},
		"white space in path": {"network:", "socket: /a b\nnetwork:", "socket"},
		"long socket":         {"network:", "socket: /" + strings.Repeat("x", 107) + "\nnetwork:", "at most 107"},
		"mtu":                 {"network:", "network:\n  mtu: 20", "mtu 20: want 1280"},
		"mtu with IPv6":       {"network:", "network:\n  mtu: 1000", "mtu 1000: want 1280"},
		"route without dst":   {"network:", "network:\n  routes: [{gw: 10.42.0.1}]", "routes[0]: dst is missing"},
		"gateway off link":    {"network:", "network:\n  routes: [{dst: 10.0.0.0/8, gw: 1.2.3.4}]", "1.2.3.4 is not on the link"},
		"host bits in dst":    {"network:", "network:\n  routes: [{dst: 10.0.0.1/8}]", "want 10.0.0.0/8"},
		"route mtu":           {"network:", "network:\n  routes: [{dst: 10.0.0.0/8, mtu: -4}]", "mtu -4"},
		"route table":         {"network:", "network:\n  routes: [{dst: 10.0.0.0/8, table: -1}]", "table -1"},
		"route scope":         {"network:", "network:\n  routes: [{dst: 10.0.0.0/8, scope: 999}]", "scope 999"},
		"route priority":      {"network:", "network:\n  routes: [{dst: 10.0.0.0/8, priority: -1}]", "priority -1"},
		"route advmss":        {"network:", "network:\n  routes: [{dst: 10.0.0.0/8, advmss: -1}]", "advmss -1"},
		"cooldown":            {"network:", "network:\n  cooldown: soon", `"soon"`},
		"cooldown number":     {"network:", "network:\n  cooldown: 5", "duration 5"},
		"long cooldown":       {"network:", "network:\n  cooldown: 48h", "network.cooldown"},
		"gc interval":         {"network:", "gc: {interval: 1ms}\nnetwork:", "gc.interval"},
		"log level":           {"network:", "log: {level: loud}\nnetwork:", "log.level"},
		"log format":          {"network:", "log: {format: xml}\nnetwork:", "log.format"},
		"not YAML":            {"network:", "]", "YAML"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(minimal, c.from, c.to, 1)
			if text == minimal {
				t.Fatal("the case changes nothing")
			}
			_, err := ParseAgentConfiguration([]byte(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// Everything that is wrong is told at once.
func TestAllMistakesAreListed(t *testing.T) {
	_, err := ParseAgentConfiguration([]byte("apiVersion: a\nkind: b\nnetwork: {ranges: []}\n"))
	for _, want := range []string{"apiVersion", "kind", "network.ranges"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %s", err, want)
		}
	}
}

func FuzzParseAgentConfiguration(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseAgentConfiguration(raw)
		if err != nil {
			return
		}
		if c.Cluster != nil {
			return
		}
		if _, err := c.Network.Pool(); err != nil || !strings.HasPrefix(c.StateDir, "/") {
			t.Errorf("accepted %+v: %v", c, err)
		}
	})
}
