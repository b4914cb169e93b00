// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net/netip"
	"reflect"
	"testing"

	"weft.dev/weft/internal/core/attach"
)

func TestRuntimePorts(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       []attach.Port
	}{
		{"as the conventions spell it", `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`,
			[]attach.Port{{Protocol: attach.TCP, HostPort: 8080, ContainerPort: 80}}},
		{"as containerd spells it", `[{"HostPort":53,"ContainerPort":5353,"Protocol":"udp","HostIP":"192.0.2.1"}]`,
			[]attach.Port{{Protocol: attach.UDP, HostIP: netip.MustParseAddr("192.0.2.1"), HostPort: 53, ContainerPort: 5353}}},
		{"upper case, IPv6", `[{"hostPort":1,"containerPort":65535,"protocol":"SCTP","hostIP":"::"}]`,
			[]attach.Port{{Protocol: attach.SCTP, HostIP: netip.IPv6Unspecified(), HostPort: 1, ContainerPort: 65535}}},
		{"no protocol", `[{"hostPort":1,"containerPort":2}]`, []attach.Port{{Protocol: attach.TCP, HostPort: 1, ContainerPort: 2}}},
		{"IPv4 in IPv6", `[{"hostPort":1,"containerPort":2,"hostIP":"::ffff:192.0.2.1"}]`,
			[]attach.Port{{Protocol: attach.TCP, HostIP: netip.MustParseAddr("192.0.2.1"), HostPort: 1, ContainerPort: 2}}},
		{"not mapped", `[{"hostPort":0,"containerPort":80,"protocol":"tcp"},{"containerPort":81,"protocol":"dccp"}]`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, key := range []string{"portMappings", "PortMappings"} {
				cfg := mustParse(t, request(Add, thick, `"runtimeConfig":{"`+key+`":`+c.list+`}`))
				if !reflect.DeepEqual(cfg.Ports, c.want) {
					t.Errorf("got %v, want %v", cfg.Ports, c.want)
				}
			}
		})
	}
	for list, words := range map[string][]string{
		`[{"hostPort":1,"containerPort":2},{"hostPort":65536,"containerPort":80}]`:   {"portMappings[1].hostPort 65536", "1 to 65535"},
		`[{"hostPort":-1,"containerPort":80}]`:                                       {"portMappings[0].hostPort -1"},
		`[{"hostPort":80}]`:                                                          {"portMappings[0].containerPort 0"},
		`[{"hostPort":80,"containerPort":80,"protocol":"dccp"}]`:                     {"portMappings[0].protocol", `"dccp"`, "tcp, udp or sctp"},
		`[{"hostPort":80,"containerPort":80,"protocol":"tcp","hostIP":"eth0"}]`:      {"portMappings[0].hostIP", `"eth0"`},
		`[{"hostPort":80,"containerPort":80,"protocol":"tcp","hostIP":"ff02::1"}]`:   {"portMappings[0].hostIP", "multicast"},
		`[{"hostPort":80,"containerPort":80,"protocol":"tcp","hostIP":"fe80::1%2"}]`: {"portMappings[0].hostIP", "zone"},
	} {
		_, err := ParseConfig(request(Add, thick, `"runtimeConfig":{"portMappings":`+list+`}`))
		wantError(t, err, CodeConfig, words...)
		mustParse(t, request(Del, thick, `"runtimeConfig":{"portMappings":`+list+`}`))
	}
	for _, list := range []string{`{}`, `"80"`, `[80]`, `[{"hostPort":"80"}]`} {
		_, err := ParseConfig(request(Add, thick, `"runtimeConfig":{"portMappings":`+list+`}`))
		wantError(t, err, CodeDecode, "runtimeConfig.portMappings")
	}
}

func TestRuntimeBandwidth(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        attach.Limits
	}{
		{"both", `{"ingressRate":2048,"ingressBurst":1600,"egressRate":4096,"egressBurst":1601}`,
			attach.Limits{Ingress: attach.Limit{Rate: 2048, Burst: 1600}, Egress: attach.Limit{Rate: 4096, Burst: 1601}}},
		{"one, as containerd passes it", `{"IngressRate":10000000,"IngressBurst":4294967295,"EgressRate":0,"EgressBurst":0}`,
			attach.Limits{Ingress: attach.Limit{Rate: 10_000_000, Burst: 4294967295}}},
		{"a rate alone", `{"egressRate":1}`, attach.Limits{Egress: attach.Limit{Rate: 1}}},
		{"a burst alone", `{"egressBurst":1,"ingressBurst":4294967295}`, attach.Limits{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if cfg := mustParse(t, request(Add, thick, `"runtimeConfig":{"bandwidth":`+c.value+`}`)); cfg.Limits != c.want {
				t.Errorf("got %+v, want %+v", cfg.Limits, c.want)
			}
		})
	}
	for _, value := range []string{`[]`, `{"ingressRate":-1}`, `{"egressRate":"10M"}`, `{"egressRate":1.5}`} {
		_, err := ParseConfig(request(Add, thick, `"runtimeConfig":{"bandwidth":`+value+`}`))
		wantError(t, err, CodeDecode, "runtimeConfig.bandwidth")
		mustParse(t, request(Del, thick, `"runtimeConfig":{"bandwidth":`+value+`}`))
	}
}
