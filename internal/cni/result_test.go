// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"weft.dev/weft/internal/core/attach"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// same compares values; nil and empty lists are the same.
func same(a, b any) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmp.Comparer(func(x, y netip.Addr) bool { return x == y }),
		cmp.Comparer(func(x, y netip.Prefix) bool { return x == y }))
}

func route(dst, gw string) attach.Route {
	r := attach.Route{Dst: netip.MustParsePrefix(dst)}
	if gw != "" {
		r.Gateway = netip.MustParseAddr(gw)
	}
	return r
}

// dualStack uses every field of 1.1.0.
func dualStack() Result {
	tuned := route("10.9.0.0/16", "10.1.0.1")
	tuned.MTU, tuned.AdvMSS, tuned.Priority, tuned.Table, tuned.Scope = 1300, 1260, 50, new(100), new(0)
	return Result{
		Interfaces: []Interface{
			{Name: "weft0123456789a", MAC: "02:57:45:46:54:01", MTU: 1450},
			{Name: "eth0", MAC: "02:00:00:00:00:07", MTU: 1450, Sandbox: "/run/netns/a", SocketPath: "/run/vhost.sock", PciID: "0000:04:00.5"},
		},
		IPs: []IP{
			{Interface: new(1), Address: netip.MustParsePrefix("10.1.0.5/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
			{Interface: new(1), Address: netip.MustParsePrefix("fd00::5/64")},
			{Address: netip.MustParsePrefix("10.2.0.5/32")},
		},
		Routes: []attach.Route{route("0.0.0.0/0", ""), tuned, route("::/0", "fe80::1")},
		DNS:    DNS{Nameservers: []string{"10.96.0.10"}, Domain: "cluster.local", Search: []string{"svc.cluster.local"}, Options: []string{"ndots:5"}},
	}
}

func samples() map[string]Result {
	return map[string]Result{
		"dualstack": dualStack(),
		"ipam":      {IPs: []IP{{Address: netip.MustParsePrefix("10.1.0.5/24"), Gateway: netip.MustParseAddr("10.1.0.1")}}, Routes: []attach.Route{route("0.0.0.0/0", "")}},
		"layer2":    {Interfaces: []Interface{{Name: "eth0", Sandbox: "/run/netns/a"}}},
		"empty":     {},
	}
}

// within returns what of r the version can hold. It is written from the text
// of the specifications, apart from the encoder.
func within(r Result, version string) Result {
	out := r.Append(Result{})
	if version == "1.1.0" {
		return out
	}
	for i := range out.Interfaces {
		out.Interfaces[i].MTU, out.Interfaces[i].SocketPath, out.Interfaces[i].PciID = 0, "", ""
	}
	for i, route := range out.Routes {
		out.Routes[i] = attach.Route{Dst: route.Dst, Gateway: route.Gateway}
	}
	if version != "0.1.0" && version != "0.2.0" {
		return out
	}
	old := Result{DNS: out.DNS}
	for _, v4 := range []bool{true, false} {
		for _, ip := range out.IPs {
			if ip.Address.Addr().Is4() != v4 {
				continue
			}
			old.IPs = append(old.IPs, IP{Address: ip.Address, Gateway: ip.Gateway})
			for _, route := range out.Routes {
				if route.Dst.Addr().Is4() == v4 {
					old.Routes = append(old.Routes, route)
				}
			}
			break
		}
	}
	return old
}

func TestEncodeGolden(t *testing.T) {
	for name, r := range samples() {
		for _, version := range Versions() {
			t.Run(name+"-"+version, func(t *testing.T) {
				got, err := r.Encode(version)
				if err != nil {
					t.Fatal(err)
				}
				golden(t, filepath.Join("testdata", name+"-"+version+".json"), got)
				if !bytes.HasPrefix(got, []byte(`{"cniVersion":"`+version+`"`)) {
					t.Error("cniVersion is not first")
				}
				checkByReference(t, got, version)
				back, err := ParseResult(got, "")
				if err != nil {
					t.Fatal(err)
				}
				if diff := same(within(r, version), back); diff != "" {
					t.Errorf("read back (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, append(bytes.Clone(got), '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSuffix(want, []byte("\n")), got) {
		t.Errorf("%s\ngot  %s\nwant %s", file, got, want)
	}
}

// checkByReference lets the reference library read a result and write it
// again; what it writes must mean the same.
func checkByReference(t interface {
	Helper()
	Fatalf(string, ...any)
}, encoded []byte, version string) {
	t.Helper()
	theirs, err := create.CreateFromBytes(encoded)
	if err != nil {
		t.Fatalf("the reference library refuses %s: %v", encoded, err)
	}
	if theirs.Version() != version {
		t.Fatalf("the reference library reads version %s; want %s", theirs.Version(), version)
	}
	again, err := json.Marshal(theirs)
	if err != nil {
		t.Fatalf("the reference library cannot write what it read of %s: %v", encoded, err)
	}
	ours, err := ParseResult(encoded, "")
	if err != nil {
		t.Fatalf("our own output: %v", err)
	}
	back, err := ParseResult(again, "")
	if err != nil {
		t.Fatalf("the reference library's output %s: %v", again, err)
	}
	if diff := same(ours, back); diff != "" {
		t.Fatalf("through the reference library (-ours +theirs):\n%s", diff)
	}
}

// Converting down is what the reference library does, too, except that it lets
// the fields of 1.1.0 through to 1.0.0 and has no old result without address.
func TestDownConversionAgreesWithTheReferenceLibrary(t *testing.T) {
	for _, name := range []string{"dualstack", "ipam"} {
		r := samples()[name]
		newest, err := r.Encode("1.1.0")
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := create.CreateFromBytes(newest)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range Versions() {
			converted, err := theirs.GetAsVersion(version)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(converted)
			if err != nil {
				t.Fatal(err)
			}
			want, err := ParseResult(raw, "")
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := r.Encode(version)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseResult(encoded, "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := same(within(want, version), got); diff != "" {
				t.Errorf("%s in %s (-library +ours):\n%s", name, version, diff)
			}
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		result  Result
		version string
		code    Code
		want    string
	}{
		"no version":      {Result{}, "", CodeVersion, `result version ""`},
		"unknown version": {Result{}, "1.2.0", CodeVersion, `result version "1.2.0"`},
		"no address":      {Result{IPs: []IP{{}}}, "1.1.0", CodeInternal, "ips[0]"},
		"no destination":  {Result{Routes: []attach.Route{{}}}, "1.1.0", CodeInternal, "routes[0]"},
		"dangling interface": {
			Result{IPs: []IP{{Interface: new(0), Address: netip.MustParsePrefix("10.0.0.1/8")}}}, "1.1.0", CodeInternal, "ips[0]: interface 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := tt.result.Encode(tt.version)
			if out != nil {
				t.Errorf("output %s", out)
			}
			wantError(t, AsError(err), tt.code, tt.want)
		})
	}
}

func TestParseResult(t *testing.T) {
	eth0 := []Interface{{Name: "eth0", Sandbox: "/n"}}
	five := IP{Address: netip.MustParsePrefix("10.1.0.5/24")}
	for name, tt := range map[string]struct {
		raw, version string
		want         Result
	}{
		"version of the request":      {`{"ips":[{"address":"10.1.0.5/24"}]}`, "1.0.0", Result{IPs: []IP{five}}},
		"no version at all":           {`{"ip4":{"ip":"10.1.0.5/24"}}`, "", Result{IPs: []IP{five}}},
		"own version wins":            {`{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.5/24"}}`, "1.1.0", Result{IPs: []IP{five}}},
		"keys of another version":     {`{"cniVersion":"0.2.0","ips":[{"address":"10.1.0.5/24"}]}`, "", Result{}},
		"digit of the family":         {`{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.0.5/24"}]}`, "", Result{IPs: []IP{five}}},
		"interface of an IPAM plugin": {`{"ips":[{"interface":0,"address":"10.1.0.5/24"}]}`, "1.0.0", Result{IPs: []IP{five}}},
		"empty strings":               {`{"ips":[{"address":"10.1.0.5/24","gateway":""}],"routes":[{"dst":"0.0.0.0/0","gw":""}]}`, "1.0.0", Result{IPs: []IP{five}, Routes: []attach.Route{route("0.0.0.0/0", "")}}},
		"nulls":                       {`{"interfaces":null,"ips":null,"routes":null,"dns":null}`, "1.0.0", Result{}},
		"IPv4-mapped":                 {`{"ips":[{"address":"::ffff:10.1.0.5/120","gateway":"::ffff:10.1.0.1"}]}`, "1.0.0", Result{IPs: []IP{{Address: five.Address, Gateway: netip.MustParseAddr("10.1.0.1")}}}},
		"destination with host bits":  {`{"routes":[{"dst":"10.1.0.5/24"}]}`, "1.0.0", Result{Routes: []attach.Route{route("10.1.0.5/24", "")}}},
		"new fields in 1.0.0": {
			`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/n","mtu":9}],"routes":[{"dst":"::/0","table":0}]}`, "",
			Result{Interfaces: []Interface{{Name: "eth0", Sandbox: "/n", MTU: 9}}, Routes: []attach.Route{{Dst: netip.MustParsePrefix("::/0"), Table: new(0)}}},
		},
		"unknown keys": {`{"interfaces":[{"name":"eth0","sandbox":"/n","vendor":{}}],"x":5}`, "1.1.0", Result{Interfaces: eth0}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseResult([]byte(tt.raw), tt.version)
			if err != nil {
				t.Fatal(err)
			}
			if diff := same(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseResultErrors(t *testing.T) {
	for raw, want := range map[string]struct {
		code Code
		part string
	}{
		``:                                 {CodeDecode, "decode result: the input is empty"},
		`{`:                                {CodeDecode, "malformed JSON"},
		`[]`:                               {CodeDecode, "want an object"},
		`{"cniVersion":"4.0.0"}`:           {CodeVersion, `result.cniVersion "4.0.0"`},
		`{"ips":{}}`:                       {CodeDecode, "result.ips: want a list"},
		`{"ips":[{"address":"10.0.0.1"}]}`: {CodeDecode, `ips[0].address "10.0.0.1"`},
		`{"ips":[{"address":"10.0.0.1/8","gateway":"x"}]}`: {CodeDecode, `ips[0].gateway "x"`},
		`{"ips":[{}]}`: {CodeDecode, `ips[0].address ""`},
		`{"interfaces":[{"name":"a"}],"ips":[{"interface":1,"address":"10.0.0.1/8"}]}`:           {CodeDecode, "ips[0].interface 1"},
		`{"interfaces":[{"name":"a"}],"ips":[{"interface":-1,"address":"10.0.0.1/8"}]}`:          {CodeDecode, "ips[0].interface -1"},
		`{"routes":[{"dst":"0.0.0.0/0"},{"dst":"x"}]}`:                                           {CodeDecode, `routes[1].dst "x"`},
		`{"routes":[{"dst":"0.0.0.0/0","gw":"x"}]}`:                                              {CodeDecode, `routes[0].gw "x"`},
		`{"routes":[{"dst":"0.0.0.0/0","table":"main"}]}`:                                        {CodeDecode, "result.routes.table: want an integer"},
		`{"cniVersion":"0.2.0","ip4":{"ip":"x"}}`:                                                {CodeDecode, `ip4.ip "x"`},
		`{"cniVersion":"0.2.0","ip6":{"ip":"fd00::1/64","gateway":"x"}}`:                         {CodeDecode, `ip6.gateway "x"`},
		`{"cniVersion":"0.2.0","ip6":{"ip":"fd00::1/64","routes":[{"dst":"::/0"},{"dst":"y"}]}}`: {CodeDecode, `ip6.routes[1].dst "y"`},
	} {
		_, err := ParseResult([]byte(raw), "1.1.0")
		wantError(t, AsError(err), want.code, want.part)
	}
}

func TestAppend(t *testing.T) {
	before, ours := dualStack(), dualStack()
	ours.Interfaces[1].Name = "net1"
	ours.DNS = DNS{Nameservers: []string{"1.1.1.1", "10.96.0.10"}, Domain: "example.org"}
	got := ours.Append(before)

	if len(got.Interfaces) != 4 || got.Interfaces[1].Name != "eth0" || got.Interfaces[3].Name != "net1" {
		t.Errorf("interfaces %+v", got.Interfaces)
	}
	var indices []string
	for _, ip := range got.IPs {
		if ip.Interface == nil {
			indices = append(indices, "nil")
		} else {
			indices = append(indices, got.Interfaces[*ip.Interface].Name)
		}
	}
	if s := strings.Join(indices, " "); s != "eth0 eth0 nil net1 net1 nil" {
		t.Errorf("addresses belong to %s", s)
	}
	if diff := same(append(dualStack().Routes, dualStack().Routes...), got.Routes); diff != "" {
		t.Errorf("routes:\n%s", diff)
	}
	wantDNS := DNS{Nameservers: []string{"10.96.0.10", "1.1.1.1"}, Domain: "example.org", Search: []string{"svc.cluster.local"}, Options: []string{"ndots:5"}}
	if diff := same(wantDNS, got.DNS); diff != "" {
		t.Errorf("dns:\n%s", diff)
	}

	// The answer is independent of both arguments.
	*got.IPs[0].Interface, *got.Routes[1].Table, *got.IPs[3].Interface = 77, 77, 77
	got.Interfaces[0].Name, got.DNS.Search[0] = "changed", "changed"
	if diff := same(dualStack(), before); diff != "" {
		t.Errorf("the previous result changed:\n%s", diff)
	}
	if *ours.IPs[0].Interface != 1 {
		t.Error("our result changed")
	}
}
