// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"strings"
	"testing"
)

func TestUsableSubnet(t *testing.T) {
	for text, want := range map[string]string{
		"10.42.0.0/16":         "",
		"100.64.0.0/10":        "",
		"240.0.0.0/8":          "",
		"1.0.0.0/8":            "",
		"128.0.0.0/2":          "link-local",
		"fd00:42::/48":         "",
		"2001:db8::/126":       "",
		"10.42.0.1/16":         "has host bits set; it should be 10.42.0.0/16",
		"fd00::1/64":           "has host bits set; it should be fd00::/64",
		"0.0.0.0/0":            "whole address space",
		"::/0":                 "whole address space",
		"0.1.0.0/16":           "unspecified",
		"127.1.0.0/16":         "loopback",
		"169.254.3.0/24":       "link-local",
		"230.0.0.0/8":          "multicast",
		"255.255.255.0/24":     "broadcast",
		"::/64":                "unspecified",
		"::1/128":              "loopback",
		"::ffff:10.0.0.0/104":  "IPv4-mapped",
		"::ffff:0:0/96":        "IPv4-mapped",
		"fe80::/64":            "link-local",
		"fe00::/7":             "link-local",
		"ff02::/16":            "multicast",
		"0.0.0.0/1":            "unspecified",
		"255.255.255.255/32":   "broadcast",
		"::ffff:10.42.0.0/112": "IPv4-mapped",
	} {
		err := UsableSubnet(netip.MustParsePrefix(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if UsableSubnet(netip.Prefix{}) == nil {
		t.Error("the zero value is a usable subnet")
	}
}

func TestUsableAddress(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.10": "", "10.0.0.0": "", "2001:db8::10": "", "fd00::": "", "::2": "",
		"0.0.0.0": "is unspecified", "127.0.0.1": "is loopback", "169.254.1.1": "is link-local",
		"224.0.0.1": "is multicast", "255.255.255.255": "is broadcast",
		"::": "is unspecified", "::1": "is loopback", "fe80::1": "is link-local", "ff02::1": "is multicast",
		"::ffff:10.0.0.1": "is IPv4-mapped", "fd00::1%eth0": "has a zone",
	} {
		err := UsableAddress(netip.MustParseAddr(text))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if UsableAddress(netip.Addr{}) == nil {
		t.Error("the zero value is a usable address")
	}
}
