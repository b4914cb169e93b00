// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/topology"
)

func TestChecksumOffloadByRelease(t *testing.T) {
	for release, want := range map[string]bool{
		"5.6.19": false, "5.7.0": true, "5.10.0-28-amd64": true, "4.19.0": false, "6.18.44-fc": true, "10.0": true, "": false, "next": false,
	} {
		ok, why := checksumOffload(release)
		if ok != want || (why == "") != ok {
			t.Errorf("%q: %v, because %q", release, ok, why)
		}
	}
}

func TestNATRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := func(name string) []netip.Prefix {
			return append(rapid.SliceOfN(prefixGen(false), 0, 5).Draw(t, name+" IPv4"), rapid.SliceOfN(prefixGen(true), 0, 5).Draw(t, name+" IPv6")...)
		}
		n := Node{Sources: list("sources"), Pools: list("pools")}
		v := NATOf(n)
		families, err := parseNAT(v)
		if (err == nil) != (len(n.Sources) > 0) {
			t.Fatalf("%+v: error %v", v, err)
		}
		if err == nil && natOf(families) != v {
			t.Fatalf("%+v became %+v", v, natOf(families))
		}
	})
}

func TestNATOfAnotherForm(t *testing.T) {
	good := NATOf(Node{Sources: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}, Pools: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
	if _, err := parseNAT(good); err != nil {
		t.Fatal(err)
	}
	for _, sources := range []string{
		"", "10.1.0.0-10.1.0.0", "10.1.0.0/24", "10.1.0.9-10.1.0.1", "10.1.0.0-fd00::1", "10.1.0.0-10.1.0.255 10.1.1.0-10.1.1.255",
		"10.2.0.0-10.2.0.9 10.1.0.0-10.1.0.9", "10.1.0.0-10.1.0.9 10.1.0.5-10.1.0.15", " 10.1.0.0-10.1.0.255", "web",
		"fd00::-fd00::ff", // the destinations are of the other family
	} {
		v := topology.NAT{Sources: sources, Direct: good.Direct}
		if _, err := parseNAT(v); err == nil {
			t.Errorf("%q was accepted", sources)
		}
	}
}

func FuzzParseNAT(f *testing.F) {
	f.Add("10.1.0.0-10.1.0.255", "10.1.0.0-10.1.255.255 127.0.0.0-127.255.255.255")
	f.Add("fd00::1", "::1 fe80::-febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	f.Fuzz(func(t *testing.T, sources, direct string) {
		v := topology.NAT{Sources: sources, Direct: direct}
		families, err := parseNAT(v)
		if err == nil && natOf(families) != v {
			t.Errorf("%+v is accepted as %+v", v, natOf(families))
		}
	})
}

// What is written is what is read.
func TestFabricRequestsReadBack(t *testing.T) {
	want := topology.Link{VNI: 7, Port: 8472, Local: netip.MustParseAddr("192.0.2.1"), MAC: attach.HostMAC, MTU: 1450}
	l, err := parseLink(addVXLAN(topology.VXLANDevice4, want).req.Serialize()[unix.SizeofNlMsghdr:])
	l.up, l.alias = true, aliasMark+"x overlay"
	if err != nil || l.object(false) != want || !l.fabricDevice() {
		t.Errorf("link %+v, error %v", l, err)
	}
	w := routeWriter{indexes: map[string]int{"eth0": 5}}
	for _, c := range []struct {
		dst         string
		local, last bool
		route       topology.Route
	}{
		{"10.42.5.0/24", false, false, topology.Route{Gateway: netip.MustParseAddr("192.0.2.9"), Dev: "eth0"}},
		{"10.42.5.0/24", false, false, topology.Route{Gateway: netip.MustParseAddr("fd00::9"), Dev: "eth0"}},
		{"fd00:42:5::/64", false, false, topology.Route{Gateway: netip.MustParseAddr("fd00::9"), Dev: "eth0"}},
		{"10.42.5.0/24", false, false, topology.Route{}},
		{"10.42.5.1/32", true, false, topology.Route{}},
		{"10.42.5.1/32", false, true, topology.Route{}},
		{"fd00:42:5::1/128", false, true, topology.Route{}},
	} {
		k := topology.RouteKey{Dst: netip.MustParsePrefix(c.dst), Local: c.local, LastResort: c.last}
		r, err := parseRoute(w.newRoute(routeOp{Key: k, Want: c.route}, create).req.Serialize()[unix.SizeofNlMsghdr:])
		r.table = map[bool]int{true: unix.RT_TABLE_LOCAL, false: unix.RT_TABLE_MAIN}[c.local] // which only an answer has as an attribute
		gotKey, got, ours := r.fabric(func(int) string { return "eth0" })
		if err != nil || !ours || gotKey != k || got != c.route {
			t.Errorf("%v %v: read %v %v, ours %v, error %v", k, c.route, gotKey, got, ours, err)
		}
	}
}

func TestLongInstanceFitsTheAlias(t *testing.T) {
	d := (&Handle{}).VXLANLinks("/" + strings.Repeat("x", 300))
	if len(d.alias) != maxAlias || !d.ours(link{kind: kindVXLAN, name: topology.VXLANDevice4, alias: d.alias}) {
		t.Errorf("alias of %d bytes", len(d.alias))
	}
}
