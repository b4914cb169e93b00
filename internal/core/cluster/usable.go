// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net/netip"
)

// special is the space that neither pods nor nodes can have addresses of
// (RFC 6890): the kernel treats each part in a way of its own.
var special = []struct {
	prefix netip.Prefix
	name   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96), "IPv4-mapped"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// UsableSubnet returns nil if pods can have addresses of the subnet.
func UsableSubnet(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return errors.New("is no subnet")
	case p.Bits() == 0:
		return errors.New("is the whole address space")
	case p != p.Masked():
		return fmt.Errorf("has host bits set; it should be %s", p.Masked())
	}
	for _, s := range special {
		if p.Overlaps(s.prefix) {
			return fmt.Errorf("has %s addresses (%s)", s.name, s.prefix)
		}
	}
	return nil
}

// UsableAddress returns nil if other nodes can reach a node by the address.
func UsableAddress(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return errors.New("is no address")
	case a.Zone() != "":
		return errors.New("has a zone")
	}
	for _, s := range special {
		if s.prefix.Contains(a) {
			return fmt.Errorf("is %s", s.name)
		}
	}
	return nil
}
