// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
)

const (
	thinIPAM = `"ipam":{"type":"weft-ipam","subnet":"10.1.0.0/24"}`
	thick    = `"socket":"/run/weft/agent.sock"`
	prev     = `"prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/n"}],"ips":[{"interface":0,"address":"10.1.0.5/24"}]}`
)

// request makes a call with the given members of the configuration.
func request(verb string, members ...string) Call {
	config := append([]string{`"cniVersion":"1.1.0","name":"net"`}, members...)
	return Call{Command: verb, ContainerID: "c1", Netns: "/n", Ifname: "eth0", Stdin: []byte("{" + strings.Join(config, ",") + "}")}
}

func mustParse(t *testing.T, call Call) *Config {
	t.Helper()
	cfg, err := ParseConfig(call)
	if err != nil {
		t.Fatalf("%s %s: code %d: %v", call.Command, call.Stdin, err.Code, err)
	}
	return cfg
}

func TestParseConfigDefaults(t *testing.T) {
	cfg := mustParse(t, request(Add, thick))
	want := &Config{
		CNIVersion: "1.1.0", Name: "net", StateDir: "/run/weft", Socket: "/run/weft/agent.sock",
		Timeout: 30 * time.Second, IPMasq: true, SysctlAllow: DefaultSysctlAllow(),
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if !cfg.Thick() {
		t.Error("not thick")
	}
}

func TestParseConfigEverything(t *testing.T) {
	call := request(Add, `"type":"weft-cni"`, `"stateDir":"/var/lib/weft/"`, `"timeout":5`, `"offlineAdd":true`,
		`"logFile":"/var/log/weft.log"`, `"repeatAdd":"return"`, `"mtu":1400`, `"mac":"02:00:00:00:00:01"`, `"ipMasq":false`,
		`"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net.core.somaxconn":"1024"}`,
		`"dns":{"nameservers":["10.0.0.10"],"domain":"d","search":["s"],"options":["o"]}`,
		`"capabilities":{"ips":true}`, `"disableCheck":"true"`, `"unknown":{"a":[1]}`, `"cni.dev/future":1`,
		`"ipam":{"type":"weft-ipam","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]],`+
			`"routes":[{"dst":"0.0.0.0/0"},{"dst":"fd01::/48","gw":"fd00::1","mtu":1300,"advmss":1200,"priority":7,"table":0,"scope":253}],`+
			`"dns":{"domain":"ipam"},"dataDir":"/var/lib/cni/networks","resolvConf":"/etc/resolv.conf","cooldown":"1m30s"}`, prev)
	cfg := mustParse(t, call)
	if cfg.Type != "weft-cni" || cfg.StateDir != "/var/lib/weft" || cfg.Timeout != 5*time.Second || !cfg.OfflineAdd ||
		cfg.LogFile != "/var/log/weft.log" || cfg.RepeatAdd != RepeatReturn || cfg.MTU != 1400 || cfg.IPMasq || cfg.Thick() ||
		cfg.MAC != (attach.MAC{2, 0, 0, 0, 0, 1}) {
		t.Errorf("got %+v", cfg)
	}
	wantSysctl := []attach.Sysctl{{Key: "net.core.somaxconn", Value: "1024"}, {Key: "net.ipv4.conf.eth0.arp_filter", Value: "1"}}
	if !reflect.DeepEqual(cfg.Sysctl, wantSysctl) {
		t.Errorf("sysctl %+v", cfg.Sysctl)
	}
	wantDNS := DNS{Nameservers: []string{"10.0.0.10"}, Domain: "d", Search: []string{"s"}, Options: []string{"o"}}
	if !reflect.DeepEqual(cfg.DNS, wantDNS) {
		t.Errorf("dns %+v", cfg.DNS)
	}
	c := cfg.IPAM
	if !c.Builtin() || c.StateDir != "/var/lib/weft" || c.DataDir != "/var/lib/cni/networks" || c.ResolvConf != "/etc/resolv.conf" ||
		c.Cooldown != 90*time.Second || c.DNS.Domain != "ipam" || len(c.Pool.Sets) != 2 {
		t.Errorf("ipam %+v", c)
	}
	wantRoutes := []attach.Route{
		{Dst: netip.MustParsePrefix("0.0.0.0/0")},
		{Dst: netip.MustParsePrefix("fd01::/48"), Gateway: netip.MustParseAddr("fd00::1"), MTU: 1300, AdvMSS: 1200, Priority: 7, Table: new(0), Scope: new(253)},
	}
	if !reflect.DeepEqual(c.Routes, wantRoutes) {
		t.Errorf("routes %+v", c.Routes)
	}
	if cfg.PrevResult == nil || len(cfg.PrevResult.IPs) != 1 {
		t.Errorf("prevResult %+v", cfg.PrevResult)
	}
	if !json.Valid(c.Raw) || !strings.Contains(string(c.Raw), `"cooldown":"1m30s"`) {
		t.Errorf("raw section %s", c.Raw)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	long := strings.Repeat("a", 100)
	for name, tt := range map[string]struct {
		call Call
		code Code
		want []string
	}{
		"nothing":          {Call{Command: Add}, CodeDecode, []string{"the input is empty"}},
		"white space":      {Call{Command: Add, Stdin: []byte(" \n")}, CodeDecode, []string{"the input is empty"}},
		"malformed":        {Call{Command: Add, Stdin: []byte(`{"name":"net","mtu":15x0}`)}, CodeDecode, []string{"offset 23", `\"mtu\":15x0`}},
		"truncated":        {Call{Command: Add, Stdin: []byte(`{"name":"net",`)}, CodeDecode, []string{"offset 14", "unexpected end"}},
		"trailing garbage": {Call{Command: Add, Stdin: []byte(`{"name":"net"} x`)}, CodeDecode, []string{"offset 16"}},
		"not an object":    {Call{Command: Add, Stdin: []byte(`["net"]`)}, CodeDecode, []string{"the whole document: want an object, found array"}},
		"null":             {Call{Command: Add, Stdin: []byte(`null`)}, CodeConfig, []string{`name "": missing`}},

		"type of name":     {Call{Command: Add, Stdin: []byte(`{"name":5}`)}, CodeDecode, []string{"name: want a string, found number"}},
		"type of mtu":      {request(Add, thick, `"mtu":"1500"`), CodeDecode, []string{"mtu: want an integer, found string", "offset"}},
		"type of bool":     {request(Add, thick, `"ipMasq":"true"`), CodeDecode, []string{"ipMasq: want true or false, found string"}},
		"type in dns":      {request(Add, thick, `"dns":{"search":"a"}`), CodeDecode, []string{"dns.search: want a list, found string"}},
		"type in sysctl":   {request(Add, thick, `"sysctl":{"net.core.somaxconn":1024}`), CodeDecode, []string{"sysctl", "want a string, found number"}},
		"type in ipam":     {request(Add, `"ipam":{"type":"weft-ipam","ranges":[[{"subnet":5}]]}`), CodeDecode, []string{"ipam.ranges.subnet: want a string"}},
		"type of ipam":     {request(Add, `"ipam":"weft-ipam"`), CodeDecode, []string{"ipam: want an object"}},
		"type of ips":      {request(Add, thick, `"runtimeConfig":{"ips":"10.0.0.1"}`), CodeDecode, []string{"runtimeConfig.ips: want a list"}},
		"type of rt mac":   {request(Add, thick, `"runtimeConfig":{"mac":5}`), CodeDecode, []string{"runtimeConfig.mac: want a string"}},
		"type of rt dns":   {request(Add, thick, `"runtimeConfig":{"dns":{"servers":5}}`), CodeDecode, []string{"runtimeConfig.dns.servers: want a list"}},
		"type of args ips": {request(Add, thick, `"args":{"cni":{"ips":5}}`), CodeDecode, []string{"args.cni.ips: want a list"}},

		"no name":           {Call{Command: Add, Stdin: []byte(`{"cniVersion":"1.0.0"}`)}, CodeConfig, []string{`name "": missing`}},
		"bad name":          {Call{Command: Add, Stdin: []byte(`{"name":"a b"}`)}, CodeConfig, []string{`name "a b": may contain only`}},
		"name with a slash": {Call{Command: Del, Stdin: []byte(`{"name":"../b"}`)}, CodeConfig, []string{`name "../b"`}},
		"unknown version": {Call{Command: Add, Stdin: []byte(`{"cniVersion":"2.0.0","name":"n"}`)}, CodeVersion,
			[]string{`cniVersion "2.0.0" is not supported`, "0.1.0 0.2.0 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0"}},

		"relative stateDir":  {request(Add, thick, `"stateDir":"run"`), CodeConfig, []string{`stateDir "run": want an absolute path`}},
		"stateDir space":     {request(Add, thick, `"stateDir":"/run/a b"`), CodeConfig, []string{`stateDir "/run/a b": contains white space`}},
		"relative socket":    {request(Add, `"socket":"agent.sock"`), CodeConfig, []string{`socket "agent.sock"`}},
		"socket space":       {request(Add, `"socket":"/run/a\tb"`), CodeConfig, []string{`socket "/run/a\tb"`}},
		"socket too long":    {request(Add, `"socket":"/run/weft/`+long+`"`), CodeConfig, []string{"socket ", "107 bytes"}},
		"relative logFile":   {request(Add, thick, `"logFile":"a.log"`), CodeConfig, []string{`logFile "a.log"`}},
		"timeout 0":          {request(Add, thick, `"timeout":0`), CodeConfig, []string{"timeout 0: want 1 to 600 seconds"}},
		"timeout 601":        {request(Add, thick, `"timeout":601`), CodeConfig, []string{"timeout 601"}},
		"timeout overflow":   {request(Add, thick, `"timeout":9223372036854775807`), CodeConfig, []string{"timeout 9223372036854775807"}},
		"timeout fraction":   {request(Add, thick, `"timeout":1.5`), CodeDecode, []string{"timeout: want an integer"}},
		"mtu 67":             {request(Add, thick, `"mtu":67`), CodeConfig, []string{"mtu 67: want 68 to 65535"}},
		"mtu 65536":          {request(Add, thick, `"mtu":65536`), CodeConfig, []string{"mtu 65536"}},
		"mtu -1":             {request(Add, thick, `"mtu":-1`), CodeConfig, []string{"mtu -1"}},
		"repeatAdd":          {request(Add, thick, `"repeatAdd":"ignore"`), CodeConfig, []string{`repeatAdd "ignore": want "return"`}},
		"mac":                {request(Add, thick, `"mac":"x"`), CodeConfig, []string{`mac "x": want a unicast`}},
		"mac, overridden":    {request(Add, thick, `"mac":"x","runtimeConfig":{"mac":"02:00:00:00:00:01"}`), CodeConfig, []string{`mac "x"`}},
		"runtimeConfig.mac":  {request(Add, thick, `"runtimeConfig":{"mac":"01:00:00:00:00:01"}`), CodeConfig, []string{`runtimeConfig.mac "01:00:00:00:00:01"`}},
		"args.cni.mac":       {request(Add, thick, `"args":{"cni":{"mac":"x"}}`), CodeConfig, []string{`args.cni.mac "x"`}},
		"runtimeConfig.ips":  {request(Add, thick, `"runtimeConfig":{"ips":["10.0.0.1","x"]}`), CodeConfig, []string{`runtimeConfig.ips[1] "x"`}},
		"args.cni.ips":       {request(Add, thick, `"args":{"cni":{"ips":["10.0.0.1/99"]}}`), CodeConfig, []string{`args.cni.ips[0] "10.0.0.1/99"`}},
		"ipam and socket":    {request(Add, thick, thinIPAM), CodeConfig, []string{"ipam and socket exclude each other", "remove one"}},
		"neither":            {request(Add), CodeConfig, []string{`network "net" has neither ipam nor socket`}},
		"empty ipam":         {request(Add, `"ipam":{}`), CodeConfig, []string{"neither ipam nor socket"}},
		"ipam without type":  {request(Add, `"ipam":{"subnet":"10.0.0.0/24"}`), CodeConfig, []string{"ipam.type is missing"}},
		"CHECK without prev": {request(Check, thick), CodeConfig, []string{"CHECK needs prevResult"}},
		"CHECK, null prev":   {request(Check, thick, `"prevResult":null`), CodeConfig, []string{"CHECK needs prevResult"}},
		"bad prevResult": {request(Add, thick, `"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1"}]}`), CodeDecode,
			[]string{"prevResult", `ips[0].address "10.0.0.1"`}},
		"type in prevResult": {request(Check, thick, `"prevResult":{"ips":5}`), CodeDecode, []string{"prevResult.ips: want a list"}},
		"prevResult version": {request(Check, thick, `"prevResult":{"cniVersion":"3.0.0"}`), CodeVersion, []string{`prevResult.cniVersion "3.0.0"`}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := ParseConfig(tt.call)
			wantError(t, err, tt.code, tt.want...)
			if cfg != nil {
				t.Errorf("an error and a configuration: %+v", cfg)
			}
		})
	}
}

func TestUnknownArgIsRefusedAtAddOnly(t *testing.T) {
	call := request(Add, thick)
	call.Args = "FOO=bar"
	_, err := ParseConfig(call)
	wantError(t, err, CodeEnvironment, "CNI_ARGS", "FOO")
	for _, verb := range []string{Del, GC, Status} {
		call.Command = verb
		mustParse(t, call)
	}
}

func TestVerbNeedsVersion(t *testing.T) {
	first := map[string]string{Add: "0.1.0", Del: "0.1.0", Check: "0.4.0", GC: "1.1.0", Status: "1.1.0"}
	parsers := map[string]func(Call) (*Config, *Error){"weft-cni": ParseConfig, "weft-ipam": ParseIPAMCall}
	for program, parse := range parsers {
		for verb, minimum := range first {
			for _, version := range append(Versions(), "") {
				call := request(verb)
				call.Stdin = []byte(`{"cniVersion":"` + version + `","name":"net",` + thinIPAM + `,"prevResult":{}}`)
				cfg, err := parse(call)
				if !AtLeast(version, minimum) {
					wantError(t, err, CodeVersion, "does not allow "+verb, minimum)
					continue
				}
				if err != nil {
					t.Errorf("%s %s at %q: %v", program, verb, version, err)
				} else if want := versionOrOldest(version); cfg.CNIVersion != want {
					t.Errorf("%s %s at %q: version %q; want %q", program, verb, version, cfg.CNIVersion, want)
				}
			}
		}
	}
}

// go-cni and hand-written files spell keys as they like.
func TestKeysAreCaseInsensitive(t *testing.T) {
	cfg := mustParse(t, Call{Command: Add, Stdin: []byte(
		`{"CNIVersion":"1.0.0","NAME":"net","Socket":"/s","RuntimeConfig":{"DNS":{"Servers":["1.1.1.1"],"Searches":["a"],"Options":["o"]},"IPs":["10.0.0.9"],"Mac":"02:00:00:00:00:07"}}`)})
	if cfg.CNIVersion != "1.0.0" || cfg.Name != "net" || cfg.Socket != "/s" || cfg.MAC[5] != 7 ||
		!reflect.DeepEqual(cfg.Want, addrs("10.0.0.9")) ||
		!reflect.DeepEqual(cfg.DNS, DNS{Nameservers: []string{"1.1.1.1"}, Search: []string{"a"}, Options: []string{"o"}}) {
		t.Errorf("got %+v", cfg)
	}
}

func TestStatusReadsTheNetworkNotTheAttachment(t *testing.T) {
	call := Call{Command: Status, Stdin: request(Status, thinIPAM).Stdin}
	if cfg := mustParse(t, call); !cfg.IPAM.Builtin() || len(cfg.IPAM.Pool.Sets) != 1 {
		t.Errorf("got %+v", cfg.IPAM)
	}
	_, err := ParseConfig(request(Status, `"ipam":{"type":"weft-ipam","subnet":"10.0.0.0/99"}`))
	wantError(t, err, CodeConfig, "ipam.subnet")
}

func TestForeignIPAMIsNotLookedInto(t *testing.T) {
	section := `{"type":"whereabouts","ranges":"any shape","routes":5,"stateDir":7}`
	cfg := mustParse(t, request(Add, `"ipam":`+section, `"runtimeConfig":{"ips":["10.0.0.5"],"ipRanges":[[{"subnet":"x"}]]}`))
	if cfg.IPAM.Builtin() || cfg.IPAM.Type != "whereabouts" || string(cfg.IPAM.Raw) != section {
		t.Errorf("got %+v", cfg.IPAM)
	}
}
