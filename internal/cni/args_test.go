// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/attach"
)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestParseArgs(t *testing.T) {
	for in, want := range map[string]Args{
		"":    {},
		";;":  {},
		"IP=": {},
		// What containerd and CRI-O send.
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=0a1b;K8S_POD_UID=5f3c-11": {
			Pod: attach.Pod{Namespace: "default", Name: "web-0", UID: "5f3c-11"}, InfraContainerID: "0a1b", IgnoreUnknown: true,
		},
		"K8S_POD_NAME=a;":                   {Pod: attach.Pod{Name: "a"}},
		"K8S_POD_RUNTIME=new;K8S_X=":        {},
		"IP=10.0.0.5":                       {IPs: addrs("10.0.0.5")},
		"IP=10.0.0.5/24":                    {IPs: addrs("10.0.0.5")},
		"IP=10.0.0.5,fd00::5/64":            {IPs: addrs("10.0.0.5", "fd00::5")},
		"IP=::ffff:10.0.0.5":                {IPs: addrs("10.0.0.5")},
		"IP=10.0.0.5;IP=10.0.0.6":           {IPs: addrs("10.0.0.6")},
		"MAC=02:00:00:00:00:0A":             {MAC: attach.MAC{2, 0, 0, 0, 0, 10}},
		"MAC=":                              {},
		"FOO=bar;IgnoreUnknown=true":        {IgnoreUnknown: true},
		"IgnoreUnknown=True;FOO=a=b":        {IgnoreUnknown: true},
		"IgnoreUnknown=1;IgnoreUnknown=0":   {},
		"IgnoreUnknown=false;K8S_POD_UID=x": {Pod: attach.Pod{UID: "x"}},
	} {
		got, err := ParseArgs(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\ngot  %+v\nwant %+v", in, got, want)
		}
	}
}

func TestParseArgsErrors(t *testing.T) {
	for in, want := range map[string]string{
		"FOO=bar":                 `unknown key "FOO"`,
		"FOO=bar;BAR=":            `unknown key "FOO, BAR"`,
		"FOO=bar;IgnoreUnknown=0": `unknown key "FOO"`,
		"ip=10.0.0.1":             `unknown key "ip"`,
		"IP":                      `want KEY=VALUE, found "IP"`,
		"=x":                      `want KEY=VALUE, found "=x"`,
		"IP=10.0.0.300":           `"IP"="10.0.0.300": want addresses`,
		"IP=10.0.0.1,":            `want addresses`,
		"IP=fe80::1%eth0":         `want addresses`,
		"MAC=01:00:5e:00:00:01":   `"MAC"="01:00:5e:00:00:01": want a unicast`,
		"MAC=0200.0000.0001":      `want a unicast`,
		"IgnoreUnknown=yes":       `"IgnoreUnknown"="yes": want 1, true, 0 or false`,
		"K8S_POD_NAME=a b":        `"K8S_POD_NAME"="a b": contains white space`,
		"K8S_POD_NAMESPACE=a/b":   `'/'`,
		"K8S_POD_UID=a\nb":        `white space`,
		"K8S_POD_UID=\xff":        `invalid UTF-8`,
		"K8S_POD_INFRA_CONTAINER_ID=" + strings.Repeat("a", 254): `longer than 253 bytes`,
	} {
		got, err := ParseArgs(in)
		wantError(t, err, CodeEnvironment, "CNI_ARGS=", want)
		if !reflect.DeepEqual(got, Args{}) {
			t.Errorf("%q: half a result: %+v", in, got)
		}
	}
}

func TestParseMAC(t *testing.T) {
	want := attach.MAC{0x02, 0xab, 0xcd, 0xef, 0x01, 0x99}
	for _, s := range []string{"02:ab:cd:ef:01:99", "02:AB:CD:EF:01:99", "02-ab-cd-ef-01-99"} {
		if got, ok := ParseMAC(s); !ok || got != want {
			t.Errorf("%q: %v %v", s, got, ok)
		}
	}
	for _, s := range []string{
		"", "02:ab:cd:ef:01", "02:ab:cd:ef:01:99:00", "02ab.cdef.0199", "02:ab:cd:ef:01-99", "02.ab.cd.ef.01.99",
		"g2:ab:cd:ef:01:99", "2:ab:cd:ef:01:999", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "02:ab:cd:ef:01:9",
	} {
		if got, ok := ParseMAC(s); ok {
			t.Errorf("%q is accepted as %v", s, got)
		}
	}
	if got, ok := ParseMAC(want.String()); !ok || got != want {
		t.Errorf("the address's own spelling is read as %v, %v", got, ok)
	}
}

func TestParsePrefix(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.5/24": "10.0.0.5/24", "fd00::5/64": "fd00::5/64", "::ffff:10.0.0.5/120": "10.0.0.5/24", "0.0.0.0/0": "0.0.0.0/0", "::/0": "::/0",
	} {
		got, err := parsePrefix("k", in)
		wantNoError(t, err)
		if got != netip.MustParsePrefix(want) {
			t.Errorf("%q became %v", in, got)
		}
	}
	for _, in := range []string{"", "10.0.0.5", "10.0.0.5/33", "10.0.0/24", "::ffff:10.0.0.5/95", "fe80::1%a/64", "10.0.0.5/024"} {
		_, err := parsePrefix("ipam.x", in)
		wantError(t, err, CodeConfig, "ipam.x ")
	}
}
