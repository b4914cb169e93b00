// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMappings(t *testing.T) {
	four, six := address("10.42.0.5", "", ""), address("fd00::5", "", "")
	tcp := func(hostIP string) Port {
		p := Port{Protocol: TCP, HostPort: 8080, ContainerPort: 80}
		if hostIP != "" {
			p.HostIP = netip.MustParseAddr(hostIP)
		}
		return p
	}
	for _, c := range []struct {
		name  string
		addrs []Address
		ports []Port
		want  string // mappings, or what the error says
	}{
		{"both families", []Address{four, six}, []Port{tcp("")}, "tcp 0.0.0.0:8080 to 10.42.0.5:80, tcp [::]:8080 to [fd00::5]:80"},
		{"the first of each", []Address{six, four, address("10.42.0.6", "", "")}, []Port{tcp("")},
			"tcp 0.0.0.0:8080 to 10.42.0.5:80, tcp [::]:8080 to [fd00::5]:80"},
		{"the family there is", []Address{six}, []Port{tcp("")}, "tcp [::]:8080 to [fd00::5]:80"},
		{"all of IPv4", []Address{four, six}, []Port{tcp("0.0.0.0")}, "tcp 0.0.0.0:8080 to 10.42.0.5:80"},
		{"one address", []Address{four, six}, []Port{tcp("2001:db8::1")}, "tcp [2001:db8::1]:8080 to [fd00::5]:80"},
		{"no IPv6", []Address{four}, []Port{tcp("2001:db8::1")}, "error: port tcp [2001:db8::1]:8080: the attachment has no address of the family"},
		{"no IPv4", []Address{six}, []Port{tcp("0.0.0.0")}, "error: port tcp 0.0.0.0:8080: the attachment has no address of the family"},
		{"::1", []Address{six}, []Port{tcp("::1")}, "error: port tcp [::1]:8080: Linux does not forward"},
		{"twice", []Address{four}, []Port{tcp(""), tcp("192.0.2.1")}, "error: port tcp 192.0.2.1:8080: listed twice"},
		{"another protocol", []Address{four}, []Port{tcp(""), {Protocol: UDP, HostPort: 8080, ContainerPort: 53}},
			"tcp 0.0.0.0:8080 to 10.42.0.5:80, udp 0.0.0.0:8080 to 10.42.0.5:53"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mappings, err := Mappings(c.ports, c.addrs)
			var parts []string
			for _, m := range mappings {
				parts = append(parts, m.String())
			}
			got := strings.Join(parts, ", ")
			if err != nil {
				got = "error: " + err.Error()
			}
			if !strings.HasPrefix(got, c.want) || (err == nil && got != c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if _, perr := NewPlan(Spec{Key: Key{"n", "c", "eth0"}, MTU: 1500, Addresses: c.addrs, Ports: c.ports}); (perr == nil) != (err == nil) {
				t.Errorf("the plan says %v", perr)
			}
		})
	}
}

func drawPort(t *rapid.T, label string) Port {
	ip := rapid.SampledFrom([]netip.Addr{
		{}, netip.IPv4Unspecified(), netip.IPv6Unspecified(),
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1"),
	})
	return Port{
		Protocol: rapid.SampledFrom([]Protocol{TCP, UDP, SCTP}).Draw(t, label+" protocol"),
		HostIP:   ip.Draw(t, label+" address"), HostPort: rapid.Uint16Range(1, 2).Draw(t, label+" port"), ContainerPort: 80,
	}
}

// Two ports overlap if and only if some packet to the host fits both.
func TestOverlapMeansACommonPacket(t *testing.T) {
	hosts := []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3"),
		netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"),
	}
	takes := func(p Port, protocol Protocol, a netip.Addr, port uint16) bool {
		return p.Protocol == protocol && p.HostPort == port &&
			(!p.HostIP.IsValid() || p.HostIP == a || (p.HostIP.IsUnspecified() && p.HostIP.Is4() == a.Is4()))
	}
	rapid.Check(t, func(t *rapid.T) {
		p, q := drawPort(t, "p"), drawPort(t, "q")
		common := false
		for _, a := range hosts {
			for port := range uint16(3) {
				for _, protocol := range []Protocol{TCP, UDP, SCTP} {
					common = common || (takes(p, protocol, a, port) && takes(q, protocol, a, port))
				}
			}
		}
		if p.Overlaps(q) != common || q.Overlaps(p) != common {
			t.Fatalf("%s and %s: overlap %v, have a common packet %v", p, q, p.Overlaps(q), common)
		}
	})
}

// What a mapping tells is the port that it came from, in one family.
func TestMappingTellsItsPort(t *testing.T) {
	addrs := []Address{address("10.42.0.5", "", ""), address("fd00::5", "", "")}
	rapid.Check(t, func(t *rapid.T) {
		p := drawPort(t, "p")
		mappings, err := Mappings([]Port{p}, addrs)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mappings {
			again, err := Mappings([]Port{m.Port()}, addrs)
			if err != nil || len(again) != 1 || again[0] != m || !m.Port().Overlaps(p) {
				t.Fatalf("%s: %s becomes %v, %v", p, m, again, err)
			}
		}
	})
}

func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		limit Limit
		want  Bucket
	}{
		{Limit{}, Bucket{}},
		{Limit{Burst: 1 << 20}, Bucket{}},
		{Limit{Rate: 1}, Bucket{1, MinBurst, MinBurst}},
		{Limit{Rate: 10_000_000}, Bucket{1_250_000, MinBurst, MinBurst + 31_250}},
		{Limit{Rate: 10_000_000, Burst: math.MaxUint32}, Bucket{1_250_000, MinBurst, MinBurst + 31_250}},
		{Limit{Rate: 1_000_000_000}, Bucket{125_000_000, 1_250_000, 1_250_000 + 3_125_000}},
		{Limit{Rate: 10_000_000, Burst: 8_000_000}, Bucket{1_250_000, 1_000_000, 1_000_000 + 31_250}},
		{Limit{Rate: 10_000_000, Burst: 1600}, Bucket{1_250_000, MinBurst, MinBurst + 31_250}},
		{Limit{Rate: math.MaxUint64, Burst: math.MaxUint64}, Bucket{1 << 61, math.MaxInt32, math.MaxUint32}},
	} {
		if got := c.limit.Bucket(); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.limit, got, c.want)
		}
	}
}

func TestShaperNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := Key{"net", rapid.StringMatching(`[a-z0-9]{1,64}`).Draw(t, "container"), "eth0"}
		host := k.HostIfname()
		shaper := Shaper(host)
		back, ok := ShapedBy(shaper)
		if !ok || back != host || len(shaper) != len(host) || strings.HasPrefix(shaper, HostIfnamePrefix) {
			t.Fatalf("%s: shaper %s, of which the host end is %s, %v", host, shaper, back, ok)
		}
		if _, ok := ShapedBy(host); ok {
			t.Fatalf("%s is taken for a shaper", host)
		}
	})
}

func TestProtocolText(t *testing.T) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		var back Protocol
		text, err := p.MarshalText()
		if err != nil || back.UnmarshalText(text) != nil || back != p {
			t.Errorf("%s becomes %s, %v", p, back, err)
		}
	}
	var p Protocol
	if err := p.UnmarshalText([]byte("dccp")); err == nil || !strings.Contains(err.Error(), `"dccp"`) {
		t.Error(err)
	}
	if s := fmt.Sprint(Protocol(33)); s != "protocol(33)" {
		t.Error(s)
	}
}
