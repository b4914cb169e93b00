// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"net/netip"
	"path"
	"testing"

	"weft.dev/weft/internal/core/attach"
)

// configSeeds are configurations as people have them.
var configSeeds = []string{
	`{"cniVersion":"1.1.0","name":"net","type":"weft-cni","socket":"/run/weft/agent.sock"}`,
	`{"cniVersion":"0.4.0","name":"net","ipam":{"type":"weft-ipam","ranges":[[{"subnet":"10.1.0.0/24","exclude":["10.1.0.8/29"]}],[{"subnet":"fd00::/64"}]],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1","table":0}],"cooldown":"5s"}}`,
	`{"cniVersion":"0.2.0","name":"net","ipam":{"type":"host-local","subnet":"10.1.0.0/24"},"prevResult":{"ip4":{"ip":"10.1.0.5/24"}}}`,
	`{"name":"net","sysctl":{"net/ipv4/conf/IFNAME/arp_filter":"1"},"sysctlAllow":["net.**"],"socket":"/a","runtimeConfig":{"ips":["10.0.0.1/8"],"mac":"02:00:00:00:00:01","dns":{"servers":["a"]},"portMappings":[]}}`,
	`{"name":"net","socket":"/a","runtimeConfig":{"portMappings":[{"HostPort":80,"ContainerPort":8080,"Protocol":"UDP","HostIP":"::"},{"hostPort":0}]}}`,
	`{"name":"net","socket":"/a","runtimeConfig":{"bandwidth":{"IngressRate":1000000,"IngressBurst":4294967295,"egressRate":1}}}`,
	`{"cniVersion":"1.1.0","name":"net","socket":"/a","cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}],"cni.dev/attachments":null}`,
	`{"cniVersion":"1.1.0","name":"net","socket":"/a","args":{"cni":{"ips":["10.0.0.1"],"mac":"02-00-00-00-00-01"}},"prevResult":{"interfaces":[{"name":"eth0"}],"ips":[{"interface":0,"address":"10.0.0.1/8"}],"routes":[{"dst":"::/0"}]}}`,
	`{"name":"net","stateDir":5,"timeout":"x","ipam":[]}`, `[]`, `null`, `{"name":`, ``,
}

func FuzzParseConfig(f *testing.F) {
	for _, seed := range configSeeds {
		f.Add([]byte(seed), "IgnoreUnknown=1;K8S_POD_NAME=a;IP=10.0.0.1")
	}
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		for _, verb := range []string{Add, Check, Del, GC, Status} {
			call := Call{Command: verb, ContainerID: "c1", Netns: "/n", Ifname: "eth0", Args: args, Stdin: stdin}
			for _, parse := range []func(Call) (*Config, *Error){ParseConfig, ParseIPAMCall} {
				cfg, err := parse(call)
				if (cfg == nil) == (err == nil) {
					t.Fatalf("%s: configuration %+v and error %v", verb, cfg, err)
				}
				if err != nil {
					checkMessage(t, err)
					if verb == Del {
						checkDelRefusal(t, stdin, err)
					}
					continue
				}
				checkConfig(t, verb, cfg)
			}
		}
	})
}

// checkDelRefusal holds DEL to its contract: an object with a name and a
// version in order is never refused.
func checkDelRefusal(t *testing.T, stdin []byte, err *Error) {
	t.Helper()
	var wire struct {
		Name       string `json:"name"`
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(stdin, &wire) == nil && nameFault(wire.Name) == "" && (wire.CNIVersion == "" || Supported(wire.CNIVersion)) {
		t.Fatalf("DEL is refused: %v\n%s", err, stdin)
	}
}

// checkConfig holds for each configuration that this package lets through.
func checkConfig(t *testing.T, verb string, cfg *Config) {
	t.Helper()
	if nameFault(cfg.Name) != "" || !Supported(cfg.CNIVersion) {
		t.Fatalf("name %q, version %q", cfg.Name, cfg.CNIVersion)
	}
	if !path.IsAbs(cfg.StateDir) || path.Clean(cfg.StateDir) != cfg.StateDir || !isField(cfg.StateDir) || len(cfg.Socket) > maxSocket {
		t.Fatalf("state directory %q, socket %q", cfg.StateDir, cfg.Socket)
	}
	if cfg.Timeout < MinTimeout || cfg.Timeout > MaxTimeout {
		t.Fatalf("timeout %s", cfg.Timeout)
	}
	if cfg.IPAM != nil && cfg.IPAM.StateDir != cfg.StateDir {
		t.Fatalf("state directories %q and %q", cfg.StateDir, cfg.IPAM.StateDir)
	}
	for _, a := range cfg.Want {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
			t.Fatalf("wanted address %v", a)
		}
	}
	for _, p := range cfg.Ports {
		known, ok := attach.ParseProtocol(p.Protocol.String())
		a := p.HostIP
		if !ok || known != p.Protocol || p.HostPort == 0 || p.ContainerPort == 0 || a.Is4In6() || a.Zone() != "" || a.IsMulticast() {
			t.Fatalf("port %v", p)
		}
	}
	for _, l := range []attach.Limit{cfg.Limits.Ingress, cfg.Limits.Egress} {
		if b := l.Bucket(); (l.Rate == 0) != b.IsZero() || (!b.IsZero() && (b.Burst < attach.MinBurst || b.Limit < b.Burst)) {
			t.Fatalf("limit %+v makes %+v", l, b)
		}
	}
	if verb == Check && cfg.PrevResult == nil && cfg.Socket != "" {
		t.Fatal("CHECK without prevResult")
	}
	if cfg.MTU != 0 && (cfg.MTU < attach.MinMTU || cfg.MTU > attach.MaxMTU) {
		t.Fatalf("mtu %d", cfg.MTU)
	}
	if cfg.PrevResult != nil {
		if _, err := cfg.PrevResult.Encode(cfg.CNIVersion); err != nil {
			t.Fatalf("prevResult cannot be written again: %v", err)
		}
	}
}

func FuzzParseArgs(f *testing.F) {
	for _, seed := range []string{
		"", "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_UID=c;K8S_POD_INFRA_CONTAINER_ID=d",
		"IP=10.0.0.1/8,fd00::1;MAC=02:00:00:00:00:01", "FOO=bar;IgnoreUnknown=True", "=;=", "K8S_POD_NAME=\u00a0",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, args string) {
		got, err := ParseArgs(args)
		if err != nil {
			checkMessage(t, err)
			return
		}
		for _, s := range []string{got.Pod.Namespace, got.Pod.Name, got.Pod.UID, got.InfraContainerID} {
			if !isField(s) || len(s) > maxArg {
				t.Fatalf("%q is no field", s)
			}
		}
		// An alias made of it can be read again.
		key := attach.Key{Network: "n", ContainerID: "c", Ifname: "eth0"}
		_, _, pod, ok := attach.ParseAlias(attach.Alias("/run/weft", key, got.Pod))
		if short := len(got.Pod.String()) < 200; !ok || short && pod.String() != got.Pod.String() {
			t.Fatalf("pod %+v comes back from the alias as %+v, %v", got.Pod, pod, ok)
		}
		for _, a := range got.IPs {
			if a != netip.MustParseAddr(a.String()) || a.Is4In6() {
				t.Fatalf("address %v", a)
			}
		}
	})
}

func FuzzParseResult(f *testing.F) {
	for _, r := range samples() {
		for _, version := range Versions() {
			encoded, err := r.Encode(version)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(encoded, version)
		}
	}
	f.Add([]byte(`{"ips":[{"interface":7,"address":"::ffff:1.2.3.4/128"}]}`), "0.3.0")
	f.Fuzz(func(t *testing.T, raw []byte, version string) {
		r, err := ParseResult(raw, version)
		if err != nil {
			checkMessage(t, AsError(err))
			return
		}
		for _, v := range Versions() {
			encoded, err := r.Encode(v)
			if err != nil {
				t.Fatalf("what was read cannot be written in %s: %v", v, err)
			}
			back, err := ParseResult(encoded, "")
			if err != nil {
				t.Fatalf("what was written in %s cannot be read: %v\n%s", v, err, encoded)
			}
			if diff := same(within(r, v), back); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", v, diff)
			}
		}
	})
}
