// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

func prefixes(s string) []netip.Prefix {
	var all []netip.Prefix
	for _, f := range strings.Fields(s) {
		all = append(all, netip.MustParsePrefix(f))
	}
	return all
}

// rng makes a range from text; empty text is the zero value.
func rng(subnet, first, last, gateway, exclude string) Range {
	return Range{
		Subnet: netip.MustParsePrefix(subnet), First: addr(first), Last: addr(last),
		Gateway: addr(gateway), Exclude: prefixes(exclude),
	}
}

func mustRange(t testing.TB, r Range) Range {
	t.Helper()
	canonical, err := NewRange(r)
	if err != nil {
		t.Fatal(err)
	}
	return canonical
}

func TestNewRange(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in, want Range
		size     uint64
	}{
		{"defaults v4", rng("10.1.0.0/24", "", "", "", ""), rng("10.1.0.0/24", "10.1.0.1", "10.1.0.254", "10.1.0.1", ""), 253},
		{"defaults v6", rng("fd00::/120", "", "", "", ""), rng("fd00::/120", "fd00::1", "fd00::ff", "fd00::1", ""), 254},
		{"v6 /64", rng("fd00::/64", "", "", "", ""), rng("fd00::/64", "fd00::1", "fd00::ffff:ffff:ffff:ffff", "fd00::1", ""), math.MaxUint64 - 1},
		{"v6 everything", rng("::/0", "", "", "", ""), rng("::/0", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::1", "::ffff:0:0/96"), math.MaxUint64},
		{"v4 everything", rng("0.0.0.0/0", "", "", "", ""), rng("0.0.0.0/0", "0.0.0.1", "255.255.255.254", "0.0.0.1", ""), 1<<32 - 3},
		{"/30", rng("10.1.0.0/30", "", "", "", ""), rng("10.1.0.0/30", "10.1.0.1", "10.1.0.2", "10.1.0.1", ""), 1},
		{"/31", rng("10.1.0.2/31", "", "", "", ""), rng("10.1.0.2/31", "10.1.0.2", "10.1.0.3", "", ""), 2},
		{"/32", rng("10.1.0.2/32", "", "", "", ""), rng("10.1.0.2/32", "10.1.0.2", "10.1.0.2", "", ""), 1},
		{"/126", rng("fd00::/126", "", "", "", ""), rng("fd00::/126", "fd00::1", "fd00::3", "fd00::1", ""), 2},
		{"/127", rng("fd00::2/127", "", "", "", ""), rng("fd00::2/127", "fd00::2", "fd00::3", "", ""), 2},
		{"/128", rng("fd00::2/128", "", "", "", ""), rng("fd00::2/128", "fd00::2", "fd00::2", "", ""), 1},
		{"/31 gateway given", rng("10.1.0.2/31", "", "", "10.1.0.3", ""), rng("10.1.0.2/31", "10.1.0.2", "10.1.0.3", "10.1.0.3", ""), 1},
		{"bounds", rng("10.1.0.0/24", "10.1.0.10", "10.1.0.19", "", ""), rng("10.1.0.0/24", "10.1.0.10", "10.1.0.19", "10.1.0.1", ""), 10},
		{"network and broadcast on demand", rng("10.1.0.0/24", "10.1.0.0", "10.1.0.255", "", ""), rng("10.1.0.0/24", "10.1.0.0", "10.1.0.255", "10.1.0.1", ""), 255},
		{"gateway in the middle", rng("10.1.0.0/24", "", "", "10.1.0.100", ""), rng("10.1.0.0/24", "10.1.0.1", "10.1.0.254", "10.1.0.100", ""), 253},
		{"link-local gateway", rng("10.1.0.0/24", "", "", "169.254.1.1", ""), rng("10.1.0.0/24", "10.1.0.1", "10.1.0.254", "169.254.1.1", ""), 254},
		{"excludes sorted and merged", rng("10.1.0.0/24", "", "", "", "10.1.0.200/32 10.1.0.0/29 10.1.0.4/30 10.1.0.200/32 10.9.0.0/16"),
			rng("10.1.0.0/24", "10.1.0.1", "10.1.0.254", "10.1.0.1", "10.1.0.0/29 10.1.0.200/32 10.9.0.0/16"), 254 - 7 - 1},
		{"exclude covers gateway and bounds", rng("10.1.0.0/28", "10.1.0.2", "10.1.0.13", "10.1.0.3", "10.1.0.0/30 10.1.0.12/30"),
			rng("10.1.0.0/28", "10.1.0.2", "10.1.0.13", "10.1.0.3", "10.1.0.0/30 10.1.0.12/30"), 8},
		{"drained", rng("10.1.0.0/24", "", "", "", "10.0.0.0/8"), rng("10.1.0.0/24", "10.1.0.1", "10.1.0.254", "10.1.0.1", "10.0.0.0/8"), 0},
		{"drained to the last address of the family", rng("255.255.255.0/24", "", "255.255.255.255", "", "255.255.255.0/24"),
			rng("255.255.255.0/24", "255.255.255.1", "255.255.255.255", "255.255.255.1", "255.255.255.0/24"), 0},
		{"mapped block inside", rng("::/64", "", "", "", ""), rng("::/64", "::1", "::ffff:ffff:ffff:ffff", "::1", "::ffff:0:0/96"), math.MaxUint64 - 1 - 1<<32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.in.Exclude)
			got, err := NewRange(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if got.Size() != tt.size {
				t.Errorf("size %d, want %d", got.Size(), tt.size)
			}
			if again := mustRange(t, got); !reflect.DeepEqual(again, got) {
				t.Errorf("second pass changed it to %+v", again)
			}
			if !slices.Equal(before, tt.in.Exclude) {
				t.Error("the argument was changed")
			}
		})
	}
}

func TestNewRangeRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   Range
		want []string
	}{
		{"no subnet", Range{}, []string{"without a subnet", "10.42.3.0/24"}},
		{"host bits", rng("10.1.0.5/24", "", "", "", ""), []string{"10.1.0.5/24", "should be 10.1.0.0/24"}},
		{"mapped subnet", Range{Subnet: netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 120)}, []string{"IPv6 spelling"}},
		{"first outside", rng("10.1.0.0/24", "10.2.0.1", "", "", ""), []string{"first address 10.2.0.1", "10.1.0.0 to 10.1.0.255"}},
		{"last outside", rng("10.1.0.0/24", "", "10.1.1.0", "", ""), []string{"last address 10.1.1.0", "outside"}},
		{"first of other family", rng("10.1.0.0/24", "fd00::1", "", "", ""), []string{"first address fd00::1", "not an IPv4"}},
		{"mapped last", rng("10.1.0.0/24", "", "::ffff:10.1.0.9", "", ""), []string{"last address ::ffff:10.1.0.9", "not an IPv4"}},
		{"mapped first in v6", rng("::/0", "::ffff:10.1.0.9", "", "", ""), []string{"first address ::ffff:10.1.0.9", "not an IPv6"}},
		{"zone", rng("fe80::/64", "fe80::9%eth0", "", "", ""), []string{"has a zone", "write fe80::9"}},
		{"order", rng("10.1.0.0/24", "10.1.0.9", "10.1.0.8", "", ""), []string{"10.1.0.9 is after the last, 10.1.0.8"}},
		{"gateway of other family", rng("10.1.0.0/24", "", "", "fe80::1", ""), []string{"gateway fe80::1", "not an IPv4"}},
		{"mapped gateway", rng("fd00::/64", "", "", "::ffff:10.0.0.1", ""), []string{"gateway", "not an IPv6"}},
		{"exclude of other family", rng("10.1.0.0/24", "", "", "", "fd00::/64"), []string{"excluded prefix fd00::/64", "not an IPv4"}},
		{"exclude with host bits", rng("10.1.0.0/24", "", "", "", "10.1.0.9/28"), []string{"10.1.0.0/28 for the block", "10.1.0.9/32 for the address"}},
		{"exclude invalid", Range{Subnet: netip.MustParsePrefix("10.1.0.0/24"), Exclude: make([]netip.Prefix, 1)}, []string{"excluded prefix"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := NewRange(tt.in)
			wantMessage(t, err, tt.want...)
			if !reflect.DeepEqual(got, Range{}) {
				t.Errorf("error with a value: %+v", got)
			}
		})
	}
}

func wantMessage(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

func TestContains(t *testing.T) {
	r := mustRange(t, rng("10.1.0.0/24", "10.1.0.10", "10.1.0.20", "10.1.0.15", "10.1.0.16/31"))
	for s, want := range map[string]bool{
		"10.1.0.9": false, "10.1.0.10": true, "10.1.0.14": true, "10.1.0.15": false, "10.1.0.16": false,
		"10.1.0.17": false, "10.1.0.18": true, "10.1.0.20": true, "10.1.0.21": false, "fd00::1": false,
		"::ffff:10.1.0.12": false, "": false,
	} {
		if got := r.Contains(addr(s)); got != want {
			t.Errorf("Contains(%q) = %v", s, got)
		}
	}
	v6 := mustRange(t, rng("::/0", "", "", "", ""))
	for s, want := range map[string]bool{"fd00::9": true, "fd00::9%eth0": false, "::ffff:1.2.3.4": false, "::1": false, "1.2.3.4": false} {
		if got := v6.Contains(addr(s)); got != want {
			t.Errorf("v6 Contains(%q) = %v", s, got)
		}
	}
}

// smallSubnets can be walked address by address. Those at the ends of the
// address space catch overflow.
var smallSubnets = []string{
	"10.1.0.0/27", "255.255.255.240/28", "0.0.0.0/28", "10.1.0.8/30", "10.1.0.8/31", "10.1.0.8/32",
	"fd00::/123", "fd00::fffe/127", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124", "::/124", "::ffff:ffff:ffff:0/124",
}

// drawRange gives a valid, canonical range in one of the subnets.
func drawRange(t *rapid.T, subnets []string) Range {
	subnet := netip.MustParsePrefix(rapid.SampledFrom(subnets).Draw(t, "subnet"))
	inside := walk(subnet.Addr(), lastOf(subnet))
	pick := rapid.SampledFrom(inside)
	r := Range{Subnet: subnet}
	if rapid.Bool().Draw(t, "bounds") {
		r.First, r.Last = pick.Draw(t, "first"), pick.Draw(t, "last")
		if r.Last.Less(r.First) {
			r.First, r.Last = r.Last, r.First
		}
	}
	if rapid.Bool().Draw(t, "with gateway") {
		r.Gateway = pick.Draw(t, "gateway")
	}
	for range rapid.IntRange(0, 3).Draw(t, "excludes") {
		bits := rapid.IntRange(subnet.Bits()-1, subnet.Addr().BitLen()).Draw(t, "bits")
		r.Exclude = append(r.Exclude, netip.PrefixFrom(pick.Draw(t, "excluded"), bits).Masked())
	}
	canonical, err := NewRange(r)
	if err != nil {
		t.Fatalf("refused %+v: %v", r, err)
	}
	return canonical
}

// walk lists first to last, one by one.
func walk(first, last netip.Addr) []netip.Addr {
	all := []netip.Addr{first}
	for a := first; a != last; {
		a = a.Next()
		all = append(all, a)
	}
	return all
}

// Size and spans agree with asking Contains about every address.
func TestRangeAgreesWithWalking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRange(t, smallSubnets)
		checkByWalking(t, r)
	})
}

func checkByWalking(t interface{ Fatalf(string, ...any) }, r Range) {
	spans := r.spans()
	var n uint64
	for _, a := range walk(r.Subnet.Addr(), lastOf(r.Subnet)) {
		want := r.Contains(a)
		if _, got := spanAt(spans, a); got != want {
			t.Fatalf("%+v: %s: in spans %v, contained %v", r, a, got, want)
		}
		if want {
			n++
		}
	}
	if r.Size() != n {
		t.Fatalf("%+v: size %d, but %d addresses", r, r.Size(), n)
	}
	for i := 1; i < len(spans); i++ {
		if !spans[i-1].last.Less(spans[i].first) {
			t.Fatalf("%+v: spans out of order: %v", r, spans)
		}
	}
}

func FuzzNewRange(f *testing.F) {
	for _, s := range smallSubnets {
		f.Add(s, "", "", "", "")
	}
	f.Add("10.1.0.0/24", "10.1.0.10", "10.1.0.20", "10.1.0.15", "10.1.0.16/31 10.1.0.16/32")
	f.Add("::/0", "::fffe:ffff:ffff", "::1:0:0:0", "fe80::1", "::ffff:0:0/100 8000::/1")
	f.Add("0.0.0.0/0", "", "255.255.255.255", "", "0.0.0.0/1")
	f.Add("fe80::/10", "fe80::1%a", "", "fe80::2%b", "")
	f.Fuzz(func(t *testing.T, subnet, first, last, gateway, exclude string) {
		var r Range
		// What does not parse stays zero, which is input too.
		r.Subnet, _ = netip.ParsePrefix(subnet)
		r.First, _ = netip.ParseAddr(first)
		r.Last, _ = netip.ParseAddr(last)
		r.Gateway, _ = netip.ParseAddr(gateway)
		for _, e := range strings.Fields(exclude) {
			p, _ := netip.ParsePrefix(e)
			r.Exclude = append(r.Exclude, p)
		}
		got, err := NewRange(r)
		if err != nil {
			return
		}
		checkCanonical(t, r, got)
	})
}

func checkCanonical(t *testing.T, in, got Range) {
	again, err := NewRange(got)
	if err != nil || !reflect.DeepEqual(again, got) {
		t.Fatalf("second pass: %+v, %v; first %+v", again, err, got)
	}
	if !got.Subnet.Contains(got.First) || !got.Subnet.Contains(got.Last) || got.Last.Less(got.First) {
		t.Fatalf("bounds of %+v", got)
	}
	if got.Contains(got.Gateway) {
		t.Fatalf("%+v contains its gateway", got)
	}
	for _, p := range in.Exclude {
		if got.Contains(p.Addr()) || got.Contains(lastOf(p)) {
			t.Fatalf("%+v contains the excluded %s", got, p)
		}
	}
	var sum uint64
	for _, s := range got.spans() {
		if !got.Contains(s.first) || !got.Contains(s.last) || got.Contains(s.first.Prev()) || got.Contains(s.last.Next()) {
			t.Fatalf("%+v: span %v is not maximal or holds what it must not", got, s)
		}
		sum = saturatingAdd(sum, s.size())
	}
	if sum != got.Size() {
		t.Fatalf("size %d, spans %d", got.Size(), sum)
	}
	if got.Subnet.Addr().BitLen()-got.Subnet.Bits() <= 10 {
		checkByWalking(t, got)
	}
}
