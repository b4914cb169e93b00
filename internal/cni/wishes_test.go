// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/attach"
)

// Each source overrides all that are lower, and empty ones do not count.
func TestMACPrecedence(t *testing.T) {
	const runtime, args, env, config = 0x11, 0x22, 0x33, 0x44
	for mask := range 16 {
		var want byte
		members := []string{thick}
		rt, ar := `""`, `""`
		call := Call{}
		if mask&1 != 0 {
			members = append(members, `"mac":"02:00:00:00:00:44"`)
			want = config
		}
		if mask&2 != 0 {
			call.Args = "MAC=02:00:00:00:00:33"
			want = env
		}
		if mask&4 != 0 {
			ar, want = `"02:00:00:00:00:22"`, args
		}
		if mask&8 != 0 {
			rt, want = `"02:00:00:00:00:11"`, runtime
		}
		members = append(members, `"args":{"cni":{"mac":`+ar+`}}`, `"runtimeConfig":{"mac":`+rt+`}`)
		parsed := request(Add, members...)
		parsed.Args = call.Args
		cfg := mustParse(t, parsed)
		wantMAC := attach.MAC{}
		if want != 0 {
			wantMAC = attach.MAC{2, 0, 0, 0, 0, want}
		}
		if cfg.MAC != wantMAC {
			t.Errorf("sources %04b: mac %s; want %s", mask, cfg.MAC, wantMAC)
		}
	}
}

func TestWantedAddressPrecedence(t *testing.T) {
	for mask := range 8 {
		var want []string
		rt, ar, env := "[]", "null", ""
		if mask&1 != 0 {
			env, want = "IP=10.1.0.33", []string{"10.1.0.33"}
		}
		if mask&2 != 0 {
			ar, want = `["10.1.0.22/24"]`, []string{"10.1.0.22"}
		}
		if mask&4 != 0 {
			rt, want = `["10.1.0.11","fd00::11/64"]`, []string{"10.1.0.11", "fd00::11"}
		}
		call := request(Add, thinIPAM, `"args":{"cni":{"ips":`+ar+`,"labels":[{"key":"a"}]}}`, `"runtimeConfig":{"ips":`+rt+`}`)
		call.Args = env
		for name, parse := range map[string]func(Call) (*Config, *Error){"weft-cni": ParseConfig, "weft-ipam": ParseIPAMCall} {
			cfg, err := parse(call)
			wantNoError(t, err)
			if !reflect.DeepEqual(cfg.Want, addrs(want...)) || !reflect.DeepEqual(cfg.IPAM.Want, cfg.Want) {
				t.Errorf("%s, sources %03b: wanted %v, in ipam %v; want %v", name, mask, cfg.Want, cfg.IPAM.Want, want)
			}
		}
	}
}

// "args" is metadata for anybody: a shape that nobody agreed on is no error.
func TestArgsOfOtherShapesAreIgnored(t *testing.T) {
	for _, args := range []string{`5`, `"x"`, `[]`, `null`, `{}`, `{"cni":5}`, `{"cni":null}`, `{"cni":["a"]}`, `{"other":{"ips":5}}`} {
		if cfg := mustParse(t, request(Add, thick, `"args":`+args)); cfg.Want != nil {
			t.Errorf("%s: wanted %v", args, cfg.Want)
		}
	}
}

func TestCapabilitiesThatWeCannotActOn(t *testing.T) {
	values := map[string]string{
		"infinibandGUID": `"c2:11:22:33:44:55:66:77"`,
		"deviceID":       `"0000:04:00.5"`,
		"aliases":        `["db"]`,
		"cgroupPath":     `"/kubelet.slice"`,
	}
	for key, value := range values {
		t.Run(key, func(t *testing.T) {
			for _, spelled := range []string{key, strings.ToUpper(key[:1]) + key[1:]} {
				_, err := ParseConfig(request(Add, thick, fmt.Sprintf(`"runtimeConfig":{%q:%s}`, spelled, value)))
				wantError(t, err, CodeUnsupportedField, "runtimeConfig."+key, value)
			}
			_, err := ParseConfig(request(Check, thick, prev, fmt.Sprintf(`"runtimeConfig":{%q:%s}`, key, value)))
			wantError(t, err, CodeUnsupportedField, key)
			mustParse(t, request(Del, thick, fmt.Sprintf(`"runtimeConfig":{%q:%s}`, key, value)))

			// The plugin that delegates to weft-ipam acts on them, not we.
			_, err = ParseIPAMCall(request(Add, thinIPAM, fmt.Sprintf(`"runtimeConfig":{%q:%s}`, key, value)))
			wantNoError(t, err)
		})
	}
	_, err := ParseConfig(request(Add, thick, "\"runtimeConfig\":{\"aliases\":[\n\"a\",\r\n\"b\" ]}"))
	wantError(t, err, CodeUnsupportedField, `["a","b"]`)
}

func TestCapabilitiesThatAskNothing(t *testing.T) {
	for _, rc := range []string{
		`null`, `{}`, `{"portMappings":[]}`, `{"portMappings":null}`, `{"bandwidth":{}}`,
		`{"bandwidth":{"IngressRate":0,"IngressBurst":0,"EgressRate":0,"EgressBurst":0}}`,
		`{"deviceID":"","infinibandGUID":"","cgroupPath":"","aliases":[""]}`,
		`{"mac":"","ips":[],"ipRanges":[],"dns":{}}`, `{"mac":null,"ips":null,"ipRanges":null,"dns":null}`,
		`{"io.kubernetes.cri.pod-annotations":{"a":"b"},"future":{"x":[1]}}`,
		`{"aliases":[false,null,[],{"a":0}]}`,
	} {
		cfg := mustParse(t, request(Add, thick, `"runtimeConfig":`+rc))
		if !cfg.MAC.IsZero() || cfg.Want != nil || !cfg.DNS.IsZero() || cfg.Ports != nil || cfg.Limits != (attach.Limits{}) {
			t.Errorf("%s changed something: %+v", rc, cfg)
		}
	}
}

func TestRuntimeDNSReplacesListByList(t *testing.T) {
	cfg := mustParse(t, request(Add, thick,
		`"dns":{"nameservers":["10.0.0.10"],"domain":"d","search":["s"],"options":["o"]}`,
		`"runtimeConfig":{"dns":{"servers":["8.8.8.8"],"searches":[]}}`))
	want := DNS{Nameservers: []string{"8.8.8.8"}, Domain: "d", Search: []string{"s"}, Options: []string{"o"}}
	if !reflect.DeepEqual(cfg.DNS, want) {
		t.Errorf("got %+v", cfg.DNS)
	}
}

func TestRuntimeRangesInThickModeAreRefused(t *testing.T) {
	_, err := ParseConfig(request(Add, thick, `"runtimeConfig":{"ipRanges":[[{"subnet":"10.0.0.0/24"}]]}`))
	wantError(t, err, CodeUnsupportedField, "runtimeConfig.ipRanges", "10.0.0.0/24")
}
