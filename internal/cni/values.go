// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net/netip"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// parseAddr reads an address that must be there.
func parseAddr(key, s string) (netip.Addr, *Error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, Errorf(CodeConfig, "%s %s: want an IP address without zone", key, quote(s))
	}
	return addr.Unmap(), nil
}

// parseAddrOrNone reads an address that may be missing, the zero Addr then.
func parseAddrOrNone(key, s string) (netip.Addr, *Error) {
	if s == "" {
		return netip.Addr{}, nil
	}
	return parseAddr(key, s)
}

// parsePrefix reads an address with prefix length, host bits and all. The
// IPv4-mapped form becomes plain IPv4, so that a family has one spelling.
func parsePrefix(key, s string) (netip.Prefix, *Error) {
	const mapped = 96 // length of ::ffff:0:0/96, RFC 4291, section 2.5.5.2
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, Errorf(CodeConfig, "%s %s: want an IP address with prefix length", key, quote(s))
	}
	if !prefix.Addr().Is4In6() {
		return prefix, nil
	}
	if prefix.Bits() < mapped {
		return netip.Prefix{}, Errorf(CodeConfig, "%s %s: mixes IPv4 and IPv6; write it as either", key, quote(s))
	}
	return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-mapped), nil
}

// parseWanted reads a requested address: <ip>[/<prefix>] (CONVENTIONS.md). The
// prefix length is dropped, because the pool knows the subnet.
func parseWanted(key, s string) (netip.Addr, *Error) {
	if !strings.Contains(s, "/") {
		return parseAddr(key, s)
	}
	prefix, err := parsePrefix(key, s)
	return prefix.Addr(), err
}

// parseWantedList reads a list of requested addresses; key is the list's.
func parseWantedList(key string, list []string) ([]netip.Addr, *Error) {
	var addrs []netip.Addr
	for i, s := range list {
		addr, err := parseWanted(index(key, i), s)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// macRule is what parseMAC accepts, for messages.
const macRule = "want a unicast EUI-48 address such as 02:00:5e:10:00:01"

// ParseMAC reads six octets separated by colons or hyphens. A group address or
// the zero address cannot be that of an interface: the kernel refuses both.
func ParseMAC(s string) (attach.MAC, bool) {
	var mac attach.MAC
	if len(s) != 3*len(mac)-1 {
		return attach.MAC{}, false
	}
	for i := range mac {
		high, low := hexDigit(s[3*i]), hexDigit(s[3*i+1])
		if high < 0 || low < 0 {
			return attach.MAC{}, false
		}
		mac[i] = byte(high<<4 | low)
		if sep := 3*i + 2; sep < len(s) && (s[sep] != s[2] || s[2] != ':' && s[2] != '-') {
			return attach.MAC{}, false
		}
	}
	if mac.IsZero() || mac[0]&0x01 != 0 {
		return attach.MAC{}, false
	}
	return mac, true
}

// hexDigit returns the value of a digit, or -1.
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
