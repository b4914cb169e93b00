// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"slices"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// ifnamePlaceholder stands for the interface's name in keys and patterns.
const ifnamePlaceholder = "IFNAME"

// DefaultSysctlAllow returns the patterns that hold where the configuration
// has none: parameters that each network namespace has for itself and that
// reach no further than the pod.
func DefaultSysctlAllow() []string {
	return []string{
		"net.ipv4.conf.IFNAME.*",
		"net.ipv6.conf.IFNAME.*",
		"net.ipv4.neigh.IFNAME.*",
		"net.ipv6.neigh.IFNAME.*",
		"net.core.somaxconn",
		"net.ipv4.tcp_*",
		"net.ipv4.ip_local_port_range",
		"net.ipv4.ip_local_reserved_ports",
		"net.ipv4.ip_unprivileged_port_start",
		"net.ipv4.ping_group_range",
		"net.ipv4.igmp_*",
		"net.unix.max_dgram_qlen",
	}
}

// parseSysctls reads the "sysctl" map: it spells every key canonically, puts
// the interface's name in, refuses what the patterns do not allow, and sorts
// by key. Nothing outside "net." is ever allowed: it would not belong to the
// pod's network namespace but to the whole host.
func parseSysctls(sysctls map[string]string, allow []string, ifname string) ([]attach.Sysctl, *Error) {
	var list []attach.Sysctl
	for key, value := range sysctls {
		components, ok := sysctlComponents(key, ifname)
		if !ok {
			return nil, Errorf(CodeConfig, "sysctl %s: want a key such as net.core.somaxconn or net/core/somaxconn", quote(key))
		}
		if components[0] != "net" {
			return nil, Errorf(CodeConfig, "sysctl %s: only keys below \"net.\" belong to a pod's network namespace", quote(key))
		}
		if !sysctlAllowed(components, allow, ifname) {
			return nil, Errorf(CodeConfig, "sysctl %s: no pattern of sysctlAllow matches; allowed: %s", quote(key), strings.Join(allow, ", "))
		}
		if strings.ContainsAny(value, "\x00\r\n") {
			return nil, Errorf(CodeConfig, "sysctl %s: value %s must be one line", quote(key), quote(value))
		}
		list = append(list, attach.Sysctl{Key: sysctlKey(components), Value: value})
	}
	slices.SortFunc(list, func(a, b attach.Sysctl) int { return strings.Compare(a.Key, b.Key) })
	for i := 1; i < len(list); i++ {
		if list[i].Key == list[i-1].Key {
			return nil, Errorf(CodeConfig, "sysctl %s is given twice in different spellings, as %s and as %s; remove one",
				quote(list[i].Key), quote(list[i-1].Value), quote(list[i].Value))
		}
	}
	return list, nil
}

// sysctlComponents splits a key like sysctl(8): the first '.' or '/' of the
// key is its separator, and the other one then stands for a literal dot inside
// a component, as interface names have (net/ipv4/conf/eth0.100/rp_filter or
// net.ipv4.conf.eth0/100.rp_filter). Components come back with their dots.
func sysctlComponents(key, ifname string) ([]string, bool) {
	at := strings.IndexAny(key, "./")
	if at < 0 || len(key) > maxPath || !isField(key) {
		return nil, false
	}
	separator := key[at : at+1]
	components := strings.Split(key, separator)
	for i, c := range components {
		if separator == "." {
			c = strings.ReplaceAll(c, "/", ".")
		}
		if c == ifnamePlaceholder && ifname != "" {
			c = ifname
		}
		if c == "" || c == "." || c == ".." {
			return nil, false
		}
		components[i] = c
	}
	return components, true
}

// sysctlKey is the canonical spelling: dots between components, and slashes
// for the dots inside them.
func sysctlKey(components []string) string {
	escaped := make([]string, len(components))
	for i, c := range components {
		escaped[i] = strings.ReplaceAll(c, ".", "/")
	}
	return strings.Join(escaped, ".")
}

// interfaceComponent is the place of the interface's name in
// net.<family>.<conf or neigh>.<interface>.<parameter>.
const interfaceComponent = 3

// sysctlAllowed matches the key as it is and with the interface's name, in its
// place, replaced by the placeholder that patterns use. STATUS knows no
// interface: any name that one may have passes for it, for ADD may come with
// just that one.
func sysctlAllowed(components []string, allow []string, ifname string) bool {
	masked := slices.Clone(components)
	if len(masked) > interfaceComponent {
		name := &masked[interfaceComponent]
		if *name == ifname || ifname == "" && ifnameFault(*name) == "" {
			*name = ifnamePlaceholder
		}
	}
	for _, pattern := range allow {
		if globMatch(pattern, sysctlKey(masked)) || globMatch(pattern, sysctlKey(components)) {
			return true
		}
	}
	return false
}

// globMatch reports whether the whole of s matches: '*' stands for any run of
// characters within a component, '**' for any run of characters at all, and
// everything else for itself. It keeps the set of places in s that the pattern
// read so far may end at, so its cost is the product of the lengths whatever
// the pattern.
func globMatch(pattern, s string) bool {
	ends := make([]bool, len(s)+1)
	ends[0] = true
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '*' {
			for j := len(s); j > 0; j-- {
				ends[j] = ends[j-1] && s[j-1] == pattern[i]
			}
			ends[0] = false
			continue
		}
		across := i+1 < len(pattern) && pattern[i+1] == '*'
		if across {
			i++
		}
		for j := range len(s) {
			ends[j+1] = ends[j+1] || ends[j] && (across || s[j] != '.')
		}
	}
	return ends[len(s)]
}
