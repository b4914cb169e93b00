// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"reflect"
	"testing"
	"time"
)

// What DEL can still use, it uses; nothing else stops it.
func TestDelIsLenient(t *testing.T) {
	for name, tt := range map[string]struct {
		members string
		want    Config // of the fields that are compared below
	}{
		"nothing": {`"x":1`, Config{StateDir: DefaultStateDir, Timeout: DefaultTimeout}},
		"all valid": {
			`"stateDir":"/s/","socket":"/a","logFile":"/l","timeout":7`,
			Config{StateDir: "/s", Socket: "/a", LogFile: "/l", Timeout: 7 * time.Second},
		},
		"types": {
			`"mtu":"x","stateDir":5,"socket":[],"logFile":{},"timeout":"5s","sysctl":"x","dns":7,"mac":{},"ipMasq":"no","runtimeConfig":3,"args":4,"type":5`,
			Config{StateDir: DefaultStateDir, Timeout: DefaultTimeout},
		},
		"values": {
			`"mtu":-5,"mac":"x","stateDir":"a","socket":"b c","logFile":"d","timeout":0,"repeatAdd":"never","sysctl":{"kernel.panic":"1"}`,
			Config{StateDir: DefaultStateDir, Timeout: DefaultTimeout},
		},
		"a bad field spoils no good one": {
			`"mtu":"x","timeout":-1,"stateDir":"/s","logFile":"x","socket":"/a"`,
			Config{StateDir: "/s", Socket: "/a", Timeout: DefaultTimeout},
		},
		"capabilities that we refuse at ADD": {
			`"socket":"/a","runtimeConfig":{"portMappings":[{"hostPort":80}],"mac":5,"ips":["x"]}`,
			Config{StateDir: "/", Socket: "/a", Timeout: DefaultTimeout},
		},
		"prevResult that cannot be read": {
			`"prevResult":{"cniVersion":"9.9.9","ips":[{"address":"x"}]}`,
			Config{StateDir: DefaultStateDir, Timeout: DefaultTimeout},
		},
		"attachments of another shape": {
			`"cni.dev/valid-attachments":"x"`, Config{StateDir: DefaultStateDir, Timeout: DefaultTimeout},
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := request(Del, tt.members)
			call.Args = "garbage"
			cfg := mustParse(t, call)
			got := Config{StateDir: cfg.StateDir, Socket: cfg.Socket, LogFile: cfg.LogFile, Timeout: cfg.Timeout}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if cfg.Name != "net" || cfg.CNIVersion != "1.1.0" || cfg.PrevResult != nil {
				t.Errorf("got %+v", cfg)
			}
		})
	}
}

func TestDelKeepsTheDelegate(t *testing.T) {
	for section, want := range map[string]*IPAMConfig{
		`null`:                              nil,
		`5`:                                 nil,
		`{}`:                                {Raw: []byte(`{}`)},
		`{"type":"host-local","ranges":5}`:  {Type: "host-local", Raw: []byte(`{"type":"host-local","ranges":5}`)},
		`{"type":"weft-ipam","subnet":"x"}`: {Type: "weft-ipam", Raw: []byte(`{"type":"weft-ipam","subnet":"x"}`)},
		`{"stateDir":5,"type":"dhcp"}`:      {Type: "dhcp", Raw: []byte(`{"stateDir":5,"type":"dhcp"}`)},
	} {
		cfg := mustParse(t, request(Del, `"stateDir":"/s"`, `"ipam":`+section))
		if want != nil {
			want.StateDir, want.Cooldown = "/s", DefaultCooldown
		}
		if !reflect.DeepEqual(cfg.IPAM, want) {
			t.Errorf("%s: got %+v; want %+v", section, cfg.IPAM, want)
		}
	}
}

// A configuration that ADD would refuse for holding both is still undone.
func TestDelTakesSocketAndIPAM(t *testing.T) {
	cfg := mustParse(t, request(Del, thick, thinIPAM, prev))
	if !cfg.Thick() || !cfg.IPAM.Builtin() || cfg.PrevResult == nil || !cfg.IPMasq {
		t.Errorf("got %+v", cfg)
	}
}

func TestDelReadsThePodOfTheCall(t *testing.T) {
	call := request(Del, thick)
	call.Args = "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"
	if got := mustParse(t, call).Args.Pod.String(); got != "a/b" {
		t.Errorf("pod %q", got)
	}
}

func TestDelStillRefuses(t *testing.T) {
	for stdin, code := range map[string]Code{
		``:                                    CodeDecode,
		`{`:                                   CodeDecode,
		`[]`:                                  CodeDecode,
		`"net"`:                               CodeDecode,
		`{"name":5}`:                          CodeDecode,
		`{}`:                                  CodeConfig,
		`{"name":""}`:                         CodeConfig,
		`{"name":"a/b"}`:                      CodeConfig,
		`{"name":"a","cniVersion":"0.9.0"}`:   CodeVersion,
		`{"name":"a","cniVersion":"1.1.0.0"}`: CodeVersion,
	} {
		for _, parse := range []func(Call) (*Config, *Error){ParseConfig, ParseIPAMCall} {
			_, err := parse(Call{Command: Del, Stdin: []byte(stdin)})
			wantError(t, err, code)
		}
	}
}

func TestValidAttachments(t *testing.T) {
	one := Attachment{ContainerID: "c1", Ifname: "eth0"}
	two := Attachment{ContainerID: "c2", Ifname: "net1"}
	const list1, list2 = `[{"containerID":"c1","ifname":"eth0"}]`, `[{"containerID":"c2","ifname":"net1"}]`
	for name, tt := range map[string]struct {
		members string
		want    ValidAttachments
	}{
		"absent":        {`"x":1`, ValidAttachments{}},
		"null":          {`"cni.dev/valid-attachments":null`, ValidAttachments{}},
		"both null":     {`"cni.dev/valid-attachments":null,"cni.dev/attachments":null`, ValidAttachments{}},
		"empty":         {`"cni.dev/valid-attachments":[]`, ValidAttachments{Present: true}},
		"older, empty":  {`"cni.dev/attachments":[]`, ValidAttachments{Present: true}},
		"one":           {`"cni.dev/valid-attachments":` + list1, ValidAttachments{true, []Attachment{one}}},
		"older":         {`"cni.dev/attachments":` + list1, ValidAttachments{true, []Attachment{one}}},
		"both the same": {`"cni.dev/valid-attachments":` + list1 + `,"cni.dev/attachments":` + list1, ValidAttachments{true, []Attachment{one}}},
		"both differ":   {`"cni.dev/valid-attachments":` + list1 + `,"cni.dev/attachments":` + list2, ValidAttachments{true, []Attachment{one, two}}},
		"one null":      {`"cni.dev/valid-attachments":null,"cni.dev/attachments":` + list2, ValidAttachments{true, []Attachment{two}}},
		"other case":    {`"cni.dev/valid-attachments":[{"ContainerID":"c1","IfName":"eth0","more":1}]`, ValidAttachments{true, []Attachment{one}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, parse := range []func(Call) (*Config, *Error){ParseConfig, ParseIPAMCall} {
				cfg, err := parse(Call{Command: GC, Stdin: request(GC, thinIPAM, tt.members).Stdin})
				wantNoError(t, err)
				if !reflect.DeepEqual(cfg.ValidAttachments, tt.want) {
					t.Errorf("got %+v; want %+v", cfg.ValidAttachments, tt.want)
				}
			}
		})
	}
	cfg := mustParse(t, request(Add, thick, `"cni.dev/valid-attachments":`+list1))
	if cfg.ValidAttachments.Present {
		t.Error("ADD has a list of valid attachments")
	}
}

// A list that cannot be read must never pass for an empty one.
func TestGCRefusesAListThatItCannotRead(t *testing.T) {
	for members, code := range map[string]Code{
		`"cni.dev/valid-attachments":{}`:                                      CodeDecode,
		`"cni.dev/valid-attachments":"c1"`:                                    CodeDecode,
		`"cni.dev/valid-attachments":["c1/eth0"]`:                             CodeDecode,
		`"cni.dev/valid-attachments":[{"containerID":5,"ifname":"a"}]`:        CodeDecode,
		`"cni.dev/valid-attachments":[null]`:                                  CodeConfig,
		`"cni.dev/valid-attachments":[{"container_id":"c1","ifname":"a"}]`:    CodeConfig,
		`"cni.dev/attachments":[{"containerID":"c1","interface":"eth0"}]`:     CodeConfig,
		`"type":5,"cni.dev/valid-attachments":[{"containerID":5}]`:            CodeDecode,
		`"prevResult":5,"cni.dev/valid-attachments":[{"containerID":"only"}]`: CodeConfig,
	} {
		for _, parse := range []func(Call) (*Config, *Error){ParseConfig, ParseIPAMCall} {
			_, err := parse(Call{Command: GC, Stdin: request(GC, thinIPAM, members).Stdin})
			wantError(t, err, code)
		}
	}
}

// GC in the wrong directory would judge other networks' state by this list.
func TestGCRefusesABadPlace(t *testing.T) {
	_, err := ParseConfig(request(GC, thinIPAM, `"stateDir":"x"`))
	wantError(t, err, CodeConfig, "stateDir")
	_, err = ParseConfig(request(GC, `"socket":"x"`))
	wantError(t, err, CodeConfig, "socket")
	_, err = ParseIPAMCall(request(GC, `"ipam":{"stateDir":"x"}`))
	wantError(t, err, CodeConfig, "ipam.stateDir")
	_, err = ParseIPAMCall(request(GC, `"ipam":{"stateDir":5}`))
	wantError(t, err, CodeDecode, "ipam.stateDir")
	cfg, err := ParseIPAMCall(request(GC, `"ipam":{"stateDir":"/s","ranges":"of no concern"}`))
	wantNoError(t, err)
	if cfg.StateDir != "/s" || cfg.IPAM.StateDir != "/s" {
		t.Errorf("state directory %q, %q", cfg.StateDir, cfg.IPAM.StateDir)
	}
}
