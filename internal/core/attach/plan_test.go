// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func intp(i int) *int { return &i }

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func address(addr, subnet, gateway string) Address {
	a := Address{Addr: netip.MustParseAddr(addr)}
	if subnet != "" {
		a.Subnet = netip.MustParsePrefix(subnet)
	}
	if gateway != "" {
		a.Gateway = netip.MustParseAddr(gateway)
	}
	return a
}

func spec(addrs ...Address) Spec {
	return Spec{Key: Key{"net", "c1", "eth0"}, Instance: "/run/weft", MTU: 1500, Addresses: addrs}
}

func TestPlanOfOneAddress(t *testing.T) {
	s := spec(address("10.42.0.5", "10.42.0.0/24", "10.42.0.1"))
	s.Routes = []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}
	s.Pod = Pod{Namespace: "default", Name: "web"}
	p, err := NewPlan(s)
	if err != nil {
		t.Fatal(err)
	}
	want := Plan{
		HostIfname: s.Key.HostIfname(), Ifname: "eth0", Alias: "weft /run/weft net/c1/eth0 default/web",
		HostMAC: HostMAC, MAC: s.Key.MAC(), MTU: 1500,
		Addresses:      prefixes("10.42.0.5/32"),
		Routes:         []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.42.0.1")}},
		Neighbours:     []Neighbour{{netip.MustParseAddr("10.42.0.1"), HostMAC}},
		HostRoutes:     prefixes("10.42.0.5/32"),
		HostNeighbours: []Neighbour{{netip.MustParseAddr("10.42.0.5"), s.Key.MAC()}},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("plan\n%+v\nwant\n%+v", p, want)
	}
}

func TestPlanRoutes(t *testing.T) {
	four := address("10.42.0.5", "10.42.0.0/24", "10.42.0.1")
	six := address("fd00::5", "fd00::/64", "")
	cases := []struct {
		name   string
		addrs  []Address
		routes []Route
		want   string // dst>gateway, in order
		proxy  bool
	}{
		{"subnet route where nothing covers it", []Address{four}, nil, "10.42.0.0/24>10.42.0.1", false},
		{"default covers the subnet", []Address{four}, []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}, "0.0.0.0/0>10.42.0.1", false},
		{"a narrower route does not", []Address{four}, []Route{{Dst: netip.MustParsePrefix("10.42.0.128/25")}}, "10.42.0.128/25>10.42.0.1 10.42.0.0/24>10.42.0.1", false},
		{"another table does not", []Address{four}, []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Table: intp(100)}}, "0.0.0.0/0>10.42.0.1 10.42.0.0/24>10.42.0.1", false},
		{"no gateway: link-local", []Address{six}, []Route{{Dst: netip.MustParsePrefix("::/0")}}, "::/0>fe80::1", false},
		{"each family its gateway", []Address{four, six}, []Route{{Dst: netip.MustParsePrefix("::/0")}, {Dst: netip.MustParsePrefix("0.0.0.0/0")}}, "::/0>fe80::1 0.0.0.0/0>10.42.0.1", false},
		{"link scope has no gateway", []Address{four}, []Route{{Dst: netip.MustParsePrefix("10.42.0.0/16"), Scope: intp(ScopeLink)}}, "10.42.0.0/16>invalid IP", true},
		{"full-length subnet needs no route", []Address{address("10.0.0.1", "10.0.0.1/32", "")}, nil, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := spec(c.addrs...)
			s.Routes = c.routes
			p, err := NewPlan(s)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range p.Routes {
				got = append(got, fmt.Sprintf("%s>%s", r.Dst, r.Gateway))
			}
			if strings.Join(got, " ") != c.want || p.ProxyARP != c.proxy {
				t.Errorf("routes %v, proxy ARP %v; want %s, %v", got, p.ProxyARP, c.want, c.proxy)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	good := func() Spec { return spec(address("10.42.0.5", "10.42.0.0/24", "10.42.0.1")) }
	cases := []struct {
		name   string
		change func(*Spec)
		want   string // in the error
	}{
		{"no address", func(s *Spec) { s.Addresses = nil }, "no address"},
		{"MTU too small", func(s *Spec) { s.MTU = 67 }, "mtu 67: want 68 to 65535"},
		{"MTU too large", func(s *Spec) { s.MTU = 65536 }, "mtu 65536"},
		{"MTU too small for IPv6", func(s *Spec) { s.MTU = 1279; s.Addresses = []Address{address("fd00::5", "", "")} }, "want 1280"},
		{"route of a family without address", func(s *Spec) { s.Routes = []Route{{Dst: netip.MustParsePrefix("::/0")}} }, "::/0: the attachment has no address"},
		{"gateway that is not on the link", func(s *Spec) {
			s.Routes = []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.42.0.9")}}
		}, "10.42.0.9 is not on the link"},
		{"link scope with a gateway", func(s *Spec) {
			s.Routes = []Route{{Dst: netip.MustParsePrefix("10.0.0.0/8"), Gateway: netip.MustParseAddr("10.42.0.1"), Scope: intp(ScopeLink)}}
		}, "scope 253 has no next hop"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			c.change(&s)
			_, err := NewPlan(s)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "net/c1/eth0") {
				t.Errorf("error %v, want one with %q and the key", err, c.want)
			}
		})
	}
}

// Planning must not write into what the caller keeps.
func TestPlanLeavesTheSpecAlone(t *testing.T) {
	s := spec(address("10.42.0.5", "10.42.0.0/24", "10.42.0.1"))
	s.Routes = append(make([]Route, 0, 8), Route{Dst: netip.MustParsePrefix("10.42.0.128/25")})
	before := fmt.Sprintf("%+v", s)
	first, err := NewPlan(s)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := NewPlan(s)
	if after := fmt.Sprintf("%+v", s); after != before {
		t.Errorf("spec became %s, was %s", after, before)
	}
	if !reflect.DeepEqual(first, second) {
		t.Error("two plans of one spec differ")
	}
}

func TestIPv6GetsItsLinkLocalAddress(t *testing.T) {
	s := spec(address("fd00::5", "fd00::/64", "fd00::1"))
	s.MAC = MAC{0x02, 0, 0, 0, 0, 0x2a}
	p, err := NewPlan(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.Addresses); got != "[fd00::5/128 fe80::ff:fe00:2a/64]" {
		t.Errorf("addresses %s", got)
	}
}

var genName = rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,30}`)

func genKey(t *rapid.T) Key {
	return Key{Network: genName.Draw(t, "network"), ContainerID: genName.Draw(t, "container"), Ifname: rapid.StringMatching(`[a-z][a-z0-9]{0,14}`).Draw(t, "ifname")}
}

func TestKeyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, other := genKey(t), genKey(t)
		parsed, err := ParseKey(k.String())
		if err != nil || parsed != k {
			t.Fatalf("%q parsed to %v, %v", k, parsed, err)
		}
		name := k.HostIfname()
		if len(name) != 15 || !strings.HasPrefix(name, HostIfnamePrefix) || strings.ContainsAny(name, "/: \t\n") {
			t.Fatalf("host interface name %q", name)
		}
		if k != other && (name == other.HostIfname() || k.MAC() == other.MAC()) {
			t.Fatalf("%v and %v share a name or a MAC", k, other)
		}
		if mac := k.MAC(); mac[0]&1 != 0 || mac[0]&2 == 0 {
			t.Fatalf("MAC %s is multicast or not locally administered", mac)
		}
	})
}

func TestParseKeyRefuses(t *testing.T) {
	for _, s := range []string{"", "a", "a/b", "a/b/c/d", "/b/c", "a//c", "a/b/"} {
		if k, err := ParseKey(s); err == nil {
			t.Errorf("%q parsed to %v", s, k)
		}
	}
}

func TestAliasRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := genKey(t)
		pod := Pod{}
		if rapid.Bool().Draw(t, "pod") {
			pod = Pod{Namespace: genName.Draw(t, "namespace"), Name: genName.Draw(t, "name")}
		}
		alias := Alias("/run/weft", k, pod)
		if len(alias) > maxAlias {
			t.Fatalf("alias of %d bytes", len(alias))
		}
		instance, gotKey, gotPod, ok := ParseAlias(alias)
		if !ok || instance != "/run/weft" || gotKey != k || gotPod != pod {
			t.Fatalf("%q parsed to %q %v %v %v", alias, instance, gotKey, gotPod, ok)
		}
	})
}

func TestAliasThatWasCut(t *testing.T) {
	long := Key{strings.Repeat("n", 200), strings.Repeat("c", 64), "eth0"}
	if _, k, _, ok := ParseAlias(Alias("/run/weft", long, Pod{})); ok {
		t.Errorf("a cut alias was taken for %v", k)
	}
	// The key is whole, only the pod was cut.
	k := Key{"net", strings.Repeat("c", 64), "eth0"}
	alias := Alias("/run/weft", k, Pod{Namespace: strings.Repeat("x", 120), Name: strings.Repeat("y", 120)})
	if _, got, _, ok := ParseAlias(alias); !ok || got != k {
		t.Errorf("alias %q: %v, %v", alias, got, ok)
	}
}

func TestParseAliasRefusesForeignOnes(t *testing.T) {
	for _, alias := range []string{"", "uplink", "weft", "weft /run/weft", "wefty /run/weft a/b/c", "weft /run/weft a/b"} {
		if _, k, _, ok := ParseAlias(alias); ok {
			t.Errorf("%q was taken for %v", alias, k)
		}
	}
}

// The second attachment of a container must not fight the first for a route.
func TestRoutesYieldByRank(t *testing.T) {
	s := spec(address("10.42.0.5", "10.42.0.0/24", "10.42.0.1"), address("fd00::5", "fd00::/64", "fd00::1"))
	s.Rank = 2
	s.Routes = []Route{{Dst: netip.MustParsePrefix("10.0.0.0/8")}, {Dst: netip.MustParsePrefix("::/0")}, {Dst: netip.MustParsePrefix("10.1.0.0/16"), Priority: 7}}
	p, err := NewPlan(s)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range p.Routes {
		got = append(got, fmt.Sprintf("%s %d", r.Dst, r.Priority))
	}
	if want := "10.0.0.0/8 200, ::/0 1224, 10.1.0.0/16 7"; strings.Join(got, ", ") != want {
		t.Errorf("routes %v, want %s", got, want)
	}
	if s.Routes[0].Priority != 0 {
		t.Error("the spec was changed")
	}
}
