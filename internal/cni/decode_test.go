// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Leniency rests on it: a type that unmarshals itself would stop the decoder
// at its first bad value, and DEL would lose whatever comes after it.
func TestWireTypesDoNotUnmarshalThemselves(t *testing.T) {
	unmarshaler, text := reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()
	raw := reflect.TypeFor[json.RawMessage]() // its method cannot fail
	seen := map[reflect.Type]bool{raw: true}
	var visit func(path string, typ reflect.Type)
	visit = func(path string, typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		if p := reflect.PointerTo(typ); p.Implements(unmarshaler) || p.Implements(text) {
			t.Errorf("%s: %s unmarshals itself", path, typ)
		}
		switch typ.Kind() {
		case reflect.Struct:
			for field := range typ.Fields() {
				visit(path+"."+field.Name, field.Type)
			}
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(path+"[]", typ.Elem())
		}
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[wirePlugin](), reflect.TypeFor[wireIPAM](), reflect.TypeFor[wireArgs](), reflect.TypeFor[wireResult](),
	} {
		visit(typ.Name(), typ)
	}
	if len(seen) < 15 {
		t.Errorf("visited %d types only: the walk is broken", len(seen))
	}
}

func TestExcerpt(t *testing.T) {
	text := []byte("0123456789abcdefghijklmnopqrstuvwxyz0123456789")
	for offset, want := range map[int64]string{
		0:  `"0123456789ab"`,
		5:  `"0123456789abcdefg"`,
		30: `"6789abcdefghijklmnopqrstuvwxyz012345"`,
		46: `"mnopqrstuvwxyz0123456789"`,
		99: `"mnopqrstuvwxyz0123456789"`,
		-1: `"0123456789ab"`,
	} {
		if got := excerpt(text, offset); got != want {
			t.Errorf("at %d: %s; want %s", offset, got, want)
		}
	}
	if got := excerpt([]byte("a\n\xff"), 1); got != `"a\n\xff"` {
		t.Errorf("control characters: %s", got)
	}
}

func TestFieldPath(t *testing.T) {
	for _, tt := range []struct{ prefix, field, want string }{
		{"", "", "the whole document"},
		{"", "mtu", "mtu"},
		{"", "wirePlugin.wireAttach.mtu", "mtu"},
		{"", "wireCommon.runtimeConfig.ips", "runtimeConfig.ips"},
		{"ipam.", "wireRange.subnet", "ipam.subnet"},
		{"ipam.", "", "ipam"},
		{"prevResult.", "ips.address", "prevResult.ips.address"},
	} {
		if got := fieldPath(tt.prefix, tt.field); got != tt.want {
			t.Errorf("%q and %q: %q; want %q", tt.prefix, tt.field, got, tt.want)
		}
	}
}

func TestQuoteIsBounded(t *testing.T) {
	if got := quote("a\nb"); got != `"a\nb"` {
		t.Errorf("got %s", got)
	}
	if got := quote(strings.Repeat("x", 1<<20)); len(got) > 2*maxQuoted || !strings.HasSuffix(got, `"...`) {
		t.Errorf("%d bytes: %s", len(got), got[:50])
	}
}

// What a runtime sends is never worth a novel in the kubelet's event.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, members := range []string{
		`"mac":"` + long + `"`, `"stateDir":"` + long + `"`, `"repeatAdd":"` + long + `"`, `"sysctl":{"net.` + long + `":"1"}`,
		`"sysctl":{"` + long + `":"1"}`, `"mtu":"` + long + `"`, `"runtimeConfig":{"ips":["` + long + `"]}`,
		`"runtimeConfig":{"ipRanges":[[{"subnet":"` + long + `"}]]}`, `"prevResult":{"cniVersion":"` + long + `"}`,
		`"ipam":{"type":"weft-ipam","subnet":"` + long + `"}`, `"ipam":{"type":"weft-ipam","cooldown":"` + long + `"}`,
		`"name":"` + long + `"`, `"cniVersion":"` + long + `"`, `"runtimeConfig":{"aliases":["` + long + `"]}`,
	} {
		_, err := ParseConfig(request(Add, thick, members))
		if err == nil || len(err.Msg) > 1500 {
			t.Errorf("%.40s: message of %d bytes", members, len(AsError(err).Msg))
		}
	}
}

func BenchmarkParseConfig(b *testing.B) {
	call := request(Add, `"type":"weft-cni"`, `"mtu":1400`, prev, `"runtimeConfig":{"ips":["10.1.0.9"]}`,
		section(`"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseConfig(call); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	r := dualStack()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Encode("1.1.0"); err != nil {
			b.Fatal(err)
		}
	}
}
