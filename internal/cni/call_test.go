// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/utils"
	"pgregory.net/rapid"
	"weft.dev/weft/internal/core/attach"
)

// getenv serves variables from a list of K=V.
func getenv(env []string) func(string) string {
	return func(key string) string {
		for _, e := range env {
			if k, v, _ := strings.Cut(e, "="); k == key {
				return v
			}
		}
		return ""
	}
}

func TestCallFromEnv(t *testing.T) {
	env := []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_NETNS=/run/netns/a", "CNI_IFNAME=eth0",
		"CNI_ARGS=IP=10.0.0.1;MAC=02:00:00:00:00:01", "CNI_PATH=/opt/cni/bin:/usr/lib/cni", "HOME=/root",
	}
	got := CallFromEnv(getenv(env), []byte("{}"))
	want := Call{
		Command: "ADD", ContainerID: "c1", Netns: "/run/netns/a", Ifname: "eth0",
		Args: "IP=10.0.0.1;MAC=02:00:00:00:00:01", Path: "/opt/cni/bin:/usr/lib/cni", Stdin: []byte("{}"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if key := got.Key("net"); key != (attach.Key{Network: "net", ContainerID: "c1", Ifname: "eth0"}) {
		t.Errorf("key %v", key)
	}
}

func TestNetnsOverride(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "TRUE": true, "true": true, "": false, "0": false, "yes": false} {
		if got := CallFromEnv(getenv([]string{"CNI_NETNS_OVERRIDE=" + value}), nil).NetnsOverride; got != want {
			t.Errorf("CNI_NETNS_OVERRIDE=%q: %v", value, got)
		}
	}
}

// What a delegated plugin reads is what we were called with.
func TestEnvRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		call := Call{
			Command:       rapid.String().Draw(t, "command"),
			ContainerID:   rapid.String().Draw(t, "container"),
			Netns:         rapid.String().Draw(t, "netns"),
			Ifname:        rapid.String().Draw(t, "ifname"),
			Args:          rapid.String().Draw(t, "args"),
			Path:          rapid.String().Draw(t, "path"),
			NetnsOverride: rapid.Bool().Draw(t, "override"),
		}
		if got := CallFromEnv(getenv(call.Env()), nil); !reflect.DeepEqual(got, call) {
			t.Fatalf("got %+v, want %+v", got, call)
		}
	})
}

// Empty variables are there too: else the delegate would see those of the
// environment that it inherits.
func TestEnvNamesEveryVariable(t *testing.T) {
	got := Call{Command: GC}.Env()
	want := []string{"CNI_COMMAND=GC", "CNI_CONTAINERID=", "CNI_NETNS=", "CNI_IFNAME=", "CNI_ARGS=", "CNI_PATH="}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestCallCheck(t *testing.T) {
	good := Call{ContainerID: "0a1b", Netns: "/run/netns/a", Ifname: "eth0"}
	with := func(verb string, change func(*Call)) Call {
		c := good
		c.Command = verb
		change(&c)
		return c
	}
	same := func(*Call) {}
	for name, tt := range map[string]struct {
		call Call
		want []string // parts of the message; nil: no error
	}{
		"ADD":                   {with(Add, same), nil},
		"CHECK":                 {with(Check, same), nil},
		"DEL":                   {with(Del, same), nil},
		"ADD needs no path":     {with(Add, func(c *Call) { c.Path = "" }), nil},
		"DEL without netns":     {with(Del, func(c *Call) { c.Netns = "" }), nil},
		"DEL with odd netns":    {with(Del, func(c *Call) { c.Netns = "a b" }), nil},
		"GC with empty values":  {Call{Command: GC}, nil},
		"STATUS":                {Call{Command: Status}, nil},
		"VERSION":               {Call{Command: Version}, nil},
		"GC ignores bad values": {Call{Command: GC, ContainerID: "///", Ifname: "too long for an interface"}, nil},

		"no command":       {Call{}, []string{`CNI_COMMAND="":`, "ADD, DEL, CHECK, GC, STATUS or VERSION"}},
		"unknown command":  {with("UPDATE", same), []string{`CNI_COMMAND="UPDATE"`}},
		"command in lower": {with("add", same), []string{`CNI_COMMAND="add"`}},

		"all missing": {Call{Command: Add}, []string{
			`CNI_CONTAINERID="": missing`, `CNI_NETNS="": missing`, `CNI_IFNAME="": missing`,
		}},
		"CHECK, all missing": {Call{Command: Check}, []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}},
		"DEL, all missing":   {Call{Command: Del}, []string{"CNI_CONTAINERID", "CNI_IFNAME"}},

		"container id":      {with(Del, func(c *Call) { c.ContainerID = "../x" }), []string{`CNI_CONTAINERID="../x": must begin`}},
		"container id long": {with(Add, func(c *Call) { c.ContainerID = strings.Repeat("a", 256) }), []string{`CNI_CONTAINERID="aaa`, "255 bytes"}},
		"ifname":            {with(Del, func(c *Call) { c.Ifname = "a/b" }), []string{`CNI_IFNAME="a/b"`}},
		"relative netns":    {with(Add, func(c *Call) { c.Netns = "netns/a" }), []string{`CNI_NETNS="netns/a"`, "absolute"}},
		"netns white space": {with(Add, func(c *Call) { c.Netns = "/run/a b" }), []string{`CNI_NETNS="/run/a b"`, "white space"}},
		"netns new line":    {with(Check, func(c *Call) { c.Netns = "/run/a\nb" }), []string{`CNI_NETNS="/run/a\nb"`}},
		"netns long":        {with(Add, func(c *Call) { c.Netns = "/" + strings.Repeat("a", 4095) }), []string{"CNI_NETNS=", "4095"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.call.Check()
			if tt.want == nil {
				wantNoError(t, err)
				return
			}
			wantError(t, err, CodeEnvironment, tt.want...)
			if len(err.Msg) > 1000 {
				t.Errorf("message of %d bytes: values are not bounded", len(err.Msg))
			}
		})
	}
}

func TestNameFault(t *testing.T) {
	for _, ok := range []string{"a", "0", "A.b_c-d", "cbr0", strings.Repeat("f", 255)} {
		if reason := nameFault(ok); reason != "" {
			t.Errorf("%q: %s", ok, reason)
		}
	}
	for _, bad := range []string{"", ".", "..", "-a", "_a", ".a", "a b", "a/b", "a\n", "a\x00", "ä", "a;b", strings.Repeat("f", 256)} {
		if nameFault(bad) == "" {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// We may be stricter than the library by length only.
func TestNameFaultAgreesWithTheReferenceLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z0-9_.\-/ ]{0,20}`)).Draw(t, "name")
		theirs := utils.ValidateNetworkName(s) == nil
		if ours := nameFault(s) == ""; len(s) <= maxName && ours != theirs {
			t.Fatalf("%q: ours %v, theirs %v", s, ours, theirs)
		}
	})
}

func TestIfnameFault(t *testing.T) {
	for _, ok := range []string{"eth0", "e", "net1.100", "a-b_c", "123456789012345", "...", "@x", "weft#1"} {
		if reason := ifnameFault(ok); reason != "" {
			t.Errorf("%q: %s", ok, reason)
		}
	}
	for _, bad := range []string{
		"", ".", "..", "all", "default", "1234567890123456", "a/b", "a:b", "a b", "a\tb", "eth%d",
		"é0", "a\x00", "a\x7f", "\xff", "à" /* its second byte is 0xa0 */, "a\u00a0b", "a\u2028b",
	} {
		if ifnameFault(bad) == "" {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestIfnameFaultIsNeverLooserThanTheReferenceLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringN(0, 18, 20).Draw(t, "ifname")
		if ifnameFault(s) == "" && utils.ValidateInterfaceName(s) != nil {
			t.Fatalf("%q is accepted; the library refuses it", s)
		}
	})
}

func TestCleanPath(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "/run/weft": "/run/weft", "/run/weft/": "/run/weft", "//run/./weft/../weft": "/run/weft", "/": "/",
	} {
		got, err := cleanPath("k", in)
		wantNoError(t, err)
		if got != want {
			t.Errorf("%q became %q; want %q", in, got, want)
		}
	}
	for _, bad := range []string{"run", "./run", "../run", "/a b", "/a\n", "/a\x00b", "/\xff", "/" + strings.Repeat("a", 4095)} {
		_, err := cleanPath("someKey", bad)
		wantError(t, err, CodeConfig, "someKey ")
	}
}
