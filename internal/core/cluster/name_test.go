// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

func TestLeaseName(t *testing.T) {
	for subnet, want := range map[string]string{
		"10.42.3.0/24":     "10-42-3-0-24",
		"10.42.3.128/30":   "10-42-3-128-30",
		"fd00:42:0:3::/64": "fd00-42-0-3-0-0-0-0-64",
		"2001:db8:ffff:ffff:ffff:ffff:ffff:fffc/126": "2001-db8-ffff-ffff-ffff-ffff-ffff-fffc-126",
	} {
		if got := LeaseName(netip.MustParsePrefix(subnet)); got != want {
			t.Errorf("LeaseName(%s) is %s, want %s", subnet, got, want)
		}
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func TestEverySubnetHasOneNameAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		subnet := drawSubnet(t)
		name := LeaseName(subnet)
		if !dnsLabel.MatchString(name) {
			t.Errorf("the name %q of %s is no DNS label", name, subnet)
		}
		if got, err := ParseLeaseName(name); err != nil || got != subnet {
			t.Errorf("ParseLeaseName(%q) = %s, %v, want %s", name, got, err, subnet)
		}
	})
}

func drawSubnet(t *rapid.T) netip.Prefix {
	length := rapid.SampledFrom([]int{4, 16}).Draw(t, "bytes")
	addr, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), length, length).Draw(t, "address"))
	return netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")).Masked()
}

func TestOtherNamesAreRefused(t *testing.T) {
	for _, name := range []string{
		"", "-", "default", "10-42-3-0", "10-42-3-0-24-1", "10.42.3.0-24", "10-42-3-0/24",
		"10-42-3-1-24", "10-42-3-0-33", "10-42-3-0--1", "10-42-3-0-", "010-42-3-0-24", "10-42-3-0-024", "10-42-3-256-24",
		"fd00-42-0-3-0-0-0-0-129", "fd00-42-0-3-0-0-0-1-64", "FD00-42-0-3-0-0-0-0-64", "fd00-0042-0-3-0-0-0-0-64",
		"fd00-42-0-3----0-64", "fd00-42-0-3-0-0-0-64", "g-0-0-0-0-0-0-0-64",
	} {
		if got, err := ParseLeaseName(name); err == nil {
			t.Errorf("ParseLeaseName(%q) = %s, want an error", name, got)
		}
	}
}

func FuzzParseLeaseName(f *testing.F) {
	f.Add("10-42-3-0-24")
	f.Add("fd00-42-0-3-0-0-0-0-64")
	f.Add("10-42-3-0-024")
	f.Fuzz(func(t *testing.T, name string) {
		subnet, err := ParseLeaseName(name)
		if err == nil && (LeaseName(subnet) != name || subnet != subnet.Masked()) {
			t.Errorf("ParseLeaseName(%q) = %s, whose name is %q", name, subnet, LeaseName(subnet))
		}
	})
}

func TestVTEPMAC(t *testing.T) {
	// The address outlives releases: peers have it in their tables.
	if got := VTEPMAC("node-1").String(); got != "9a:0b:d5:2d:56:ec" {
		t.Errorf("the address of node-1 is %s now", got)
	}
	seen := map[string]string{}
	for i := range 5000 {
		node := fmt.Sprintf("node-%d", i)
		mac := VTEPMAC(node)
		if mac[0]&0x03 != 0x02 {
			t.Errorf("%s of %s is not unicast and locally administered", mac, node)
		}
		if other := seen[mac.String()]; other != "" {
			t.Errorf("%s and %s share %s", node, other, mac)
		}
		seen[mac.String()] = node
	}
}
