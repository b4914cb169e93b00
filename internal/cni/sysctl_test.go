// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"weft.dev/weft/internal/core/attach"
)

func TestSysctlKeys(t *testing.T) {
	for _, tt := range []struct{ key, ifname, want string }{
		{"net.ipv4.conf.IFNAME.arp_filter", "eth0", "net.ipv4.conf.eth0.arp_filter"},
		{"net/ipv4/conf/IFNAME/arp_filter", "eth0", "net.ipv4.conf.eth0.arp_filter"},
		{"net.ipv6.conf.eth0.accept_ra", "eth0", "net.ipv6.conf.eth0.accept_ra"},
		// The kernel's names have dots that are not separators.
		{"net.ipv4.conf.IFNAME.arp_filter", "eth0.100", "net.ipv4.conf.eth0/100.arp_filter"},
		{"net/ipv4/conf/eth0.100/arp_filter", "eth0.100", "net.ipv4.conf.eth0/100.arp_filter"},
		{"net.ipv4.conf.eth0/100.arp_filter", "eth0.100", "net.ipv4.conf.eth0/100.arp_filter"},
		{"net.ipv4.tcp_syncookies", "eth0", "net.ipv4.tcp_syncookies"},
		{"net.ipv4.neigh.IFNAME.gc_stale_time", "x", "net.ipv4.neigh.x.gc_stale_time"},
	} {
		got, err := parseSysctls(map[string]string{tt.key: "1"}, DefaultSysctlAllow(), tt.ifname)
		if err != nil {
			t.Errorf("%s: %v", tt.key, err)
			continue
		}
		if want := []attach.Sysctl{{Key: tt.want, Value: "1"}}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s on %s: got %v", tt.key, tt.ifname, got)
		}
	}
}

func TestDefaultSysctls(t *testing.T) {
	for _, key := range []string{
		"net.core.somaxconn", "net.ipv4.tcp_rmem", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.igmp_max_memberships", "net.unix.max_dgram_qlen",
		"net.ipv4.conf.eth0.rp_filter", "net.ipv6.neigh.eth0.mcast_solicit",
	} {
		if _, err := parseSysctls(map[string]string{key: "1"}, DefaultSysctlAllow(), "eth0"); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, key := range []string{
		"net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter", "net.ipv4.conf.eth1.rp_filter", "net.ipv4.conf.eth0.a.b",
		"net.ipv4.ip_forward", "net.core.rmem_max", "net.netfilter.nf_conntrack_max", "net.core.somaxconn2", "net.ipv4.conf.eth0", "net.core",
	} {
		_, err := parseSysctls(map[string]string{key: "1"}, DefaultSysctlAllow(), "eth0")
		wantError(t, err, CodeConfig, `sysctl "`+key+`"`, "net.ipv4.conf.IFNAME.*", "net.unix.max_dgram_qlen")
	}
}

// An interface may be called like a part of some other key.
func TestIfnameIsAPlaceNotAWord(t *testing.T) {
	for ifname, key := range map[string]string{
		"ipv4": "net.ipv4.ip_forward",
		"conf": "net.ipv4.conf.all.rp_filter",
		"x":    "net.ipv4.conf.y.x",
		"tcp":  "net.core.tcp",
	} {
		_, err := parseSysctls(map[string]string{key: "1"}, DefaultSysctlAllow(), ifname)
		wantError(t, err, CodeConfig, key)
	}
	if _, err := parseSysctls(map[string]string{"net.ipv4.conf.conf.rp_filter": "1"}, DefaultSysctlAllow(), "conf"); err != nil {
		t.Errorf("interface conf: %v", err)
	}
}

func TestSysctlRefusals(t *testing.T) {
	everything := []string{"**"}
	for key, want := range map[string]string{
		"kernel.shmmax":                `only keys below "net."`,
		"vm/swappiness":                `only keys below "net."`,
		"netx.ipv4.tcp_a":              `only keys below "net."`,
		"net":                          "want a key such as",
		"":                             "want a key such as",
		"net..core":                    "want a key such as",
		"net.core.":                    "want a key such as",
		".net.core":                    "want a key such as",
		"net/../kernel/shmmax":         "want a key such as",
		"net/./core":                   "want a key such as",
		"net.//.kernel":                "want a key such as", // ".." in its dotted spelling
		"net.core.a b":                 "want a key such as",
		"net.core.a\n":                 "want a key such as",
		"/proc/sys/net/core/somaxconn": "want a key such as",
	} {
		_, err := parseSysctls(map[string]string{key: "1"}, everything, "eth0")
		wantError(t, err, CodeConfig, want)
	}
	for _, value := range []string{"1\n2", "1\x00", "1\r"} {
		_, err := parseSysctls(map[string]string{"net.core.somaxconn": value}, everything, "eth0")
		wantError(t, err, CodeConfig, "one line")
	}
	_, err := parseSysctls(map[string]string{"net.core.somaxconn": "1", "net/core/somaxconn": "2"}, everything, "eth0")
	wantError(t, err, CodeConfig, `"net.core.somaxconn" is given twice`)
}

func TestSysctlAllowReplacesTheDefault(t *testing.T) {
	mustParse(t, request(Add, thick, `"sysctl":{"net.ipv4.ip_forward":"1"}`, `"sysctlAllow":["net.ipv4.ip_*"]`))
	_, err := ParseConfig(request(Add, thick, `"sysctl":{"net.core.somaxconn":"1"}`, `"sysctlAllow":["net.ipv4.ip_*"]`))
	wantError(t, err, CodeConfig, `"net.core.somaxconn"`, "allowed: net.ipv4.ip_*")
	_, err = ParseConfig(request(Add, thick, `"sysctl":{"net.core.somaxconn":"1"}`, `"sysctlAllow":[]`))
	wantError(t, err, CodeConfig, `"net.core.somaxconn"`)
	mustParse(t, request(Add, thick, `"sysctl":{"net.core.somaxconn":"1"}`, `"sysctlAllow":null`))
}

func TestSysctlOrderIsThatOfTheKeys(t *testing.T) {
	in := map[string]string{"net.ipv4.tcp_b": "2", "net.ipv4.tcp_a": "1", "net.core.somaxconn": "0", "net.ipv4.tcp_c": "3"}
	for range 20 {
		got, err := parseSysctls(in, DefaultSysctlAllow(), "eth0")
		wantNoError(t, err)
		var values string
		for _, s := range got {
			values += s.Value
		}
		if values != "0123" {
			t.Fatalf("order %s", values)
		}
	}
}

func TestGlobMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"a", "a", true}, {"ab", "a", false},
		{"*", "", true}, {"*", "abc", true}, {"*", "a.b", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false}, {"a.*.c", "a.b.c", true},
		{"**", "a.b.c", true}, {"a.**", "a.b.c", true}, {"a.**.d", "a.b.c.d", true}, {"**.c", "a.b.c", true}, {"**.c", "c", false},
		{"tcp_*", "tcp_", true}, {"tcp_*", "tcp", false}, {"*_*", "a_b", true}, {"a*b*c", "axxbyyc", true}, {"a*b*c", "axxcyyb", false},
		{"a?c", "abc", false}, {"[ab]", "a", false},
	} {
		if got := globMatch(tt.pattern, tt.s); got != tt.want {
			t.Errorf("%q on %q: %v", tt.pattern, tt.s, got)
		}
	}
}

// Without a double star the components of pattern and key pair up.
func TestGlobMatchesComponentByComponent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[a*](\*?[ab.])*`).Filter(func(s string) bool { return !strings.Contains(s, "**") }).Draw(t, "pattern")
		s := rapid.StringMatching(`[ab.]{0,8}`).Draw(t, "s")
		patterns, parts := strings.Split(pattern, "."), strings.Split(s, ".")
		want := len(patterns) == len(parts)
		for i := 0; want && i < len(parts); i++ {
			want = globMatch(patterns[i], parts[i])
		}
		if got := globMatch(pattern, s); got != want {
			t.Fatalf("%q on %q: %v; component by component %v", pattern, s, got, want)
		}
	})
}

// A key for one interface must not make the node unready.
func TestStatusKnowsNoInterface(t *testing.T) {
	for _, key := range []string{"net.ipv4.conf.eth0.rp_filter", "net.ipv4.conf.IFNAME.rp_filter", "net/ipv4/conf/net1.5/rp_filter"} {
		call := request(Status, thick, `"sysctl":{"`+key+`":"1"}`)
		call.Ifname = ""
		mustParse(t, call)
	}
	for _, key := range []string{"net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter", "net.ipv4.ip_forward"} {
		call := request(Status, thick, `"sysctl":{"`+key+`":"1"}`)
		call.Ifname = ""
		_, err := ParseConfig(call)
		wantError(t, err, CodeConfig, key)
	}
}
