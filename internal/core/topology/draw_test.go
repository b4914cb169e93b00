// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"net/netip"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
)

var drawNode = rapid.Map(rapid.IntRange(1, 5), func(i int) string { return fmt.Sprintf("node%d", i) })

// Subnets of which many contain each other or node addresses, overlap the
// underlay or are too small.
var drawSubnet = rapid.Custom(func(t *rapid.T) netip.Prefix {
	if rapid.IntRange(0, 9).Draw(t, "special") == 0 {
		return rapid.SampledFrom([]netip.Prefix{
			netip.MustParsePrefix("198.18.1.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
			netip.MustParsePrefix("198.18.2.0/24"), netip.MustParsePrefix("198.18.2.12/30"),
			netip.MustParsePrefix("198.18.2.12/32"), netip.MustParsePrefix("10.42.0.0/31"),
			netip.MustParsePrefix("fd00:1::/64"), netip.MustParsePrefix("fd00:2::10/126"),
		}).Draw(t, "subnet")
	}
	third := byte(rapid.IntRange(0, 3).Draw(t, "third"))
	if rapid.Bool().Draw(t, "IPv6") {
		bits := rapid.SampledFrom([]int{60, 62, 64, 64, 64, 66}).Draw(t, "bits")
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x42, 7: third}), bits).Masked()
	}
	bits := rapid.SampledFrom([]int{22, 23, 24, 24, 24, 25, 26}).Draw(t, "bits")
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, third, 0}), bits).Masked()
})

// One address of a subnet, often its gateway or another's.
var drawInside = rapid.Custom(func(t *rapid.T) func(netip.Prefix) netip.Prefix {
	n := rapid.SampledFrom([]int{0, 1, 1, 2, 7, 65}).Draw(t, "address")
	return func(subnet netip.Prefix) netip.Prefix {
		a := subnet.Addr()
		for range n {
			a = a.Next()
		}
		return netip.PrefixFrom(a, a.BitLen())
	}
})

var drawSubnet6 = drawSubnet.Filter(func(p netip.Prefix) bool { return p.Addr().Is6() })

var drawUnderlay4 = rapid.Custom(func(t *rapid.T) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(rapid.IntRange(1, 2).Draw(t, "segment")), byte(rapid.IntRange(11, 14).Draw(t, "host"))})
})

var drawUnderlay6 = rapid.Custom(func(t *rapid.T) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: byte(rapid.IntRange(1, 2).Draw(t, "segment")), 15: byte(rapid.IntRange(0x11, 0x14).Draw(t, "host"))})
})

var drawAddresses = rapid.Custom(func(t *rapid.T) (addrs []netip.Addr) {
	if rapid.IntRange(0, 3).Draw(t, "has IPv4") > 0 {
		addrs = append(addrs, drawUnderlay4.Draw(t, "IPv4"))
	}
	if rapid.Bool().Draw(t, "has IPv6") {
		addrs = append(addrs, drawUnderlay6.Draw(t, "IPv6"))
	}
	return addrs
})

// Now and then an address in some lease's subnet.
var drawNodeAddresses = rapid.Custom(func(t *rapid.T) []netip.Addr {
	addrs := drawAddresses.Draw(t, "addresses")
	if rapid.IntRange(0, 9).Draw(t, "stray") > 0 {
		return addrs
	}
	for i, a := range addrs {
		third, host := byte(rapid.IntRange(0, 3).Draw(t, "third")), byte(rapid.IntRange(0, 2).Draw(t, "host"))
		if a.Is4() {
			addrs[i] = netip.AddrFrom4([4]byte{10, 42, third, 63 * host})
		} else {
			addrs[i] = netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x42, 7: third, 15: host})
		}
	}
	return addrs
})

var drawLease = rapid.Custom(func(t *rapid.T) cluster.Lease {
	l := cluster.Lease{
		Subnet: drawSubnet.Draw(t, "subnet"), Node: drawNode.Draw(t, "node"),
		Created:   rapid.Int64Range(0, 3).Draw(t, "created"),
		Version:   rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"),
		Addresses: drawNodeAddresses.Draw(t, "node addresses"),
	}
	if rapid.IntRange(0, 3).Draw(t, "of a pod") == 0 {
		l.Pod = rapid.SampledFrom([]string{"prod/db-0", "prod/db-1"}).Draw(t, "pod")
		if rapid.IntRange(0, 9).Draw(t, "too large") > 0 {
			l.Subnet = drawInside.Draw(t, "of it")(l.Subnet)
		}
	}
	l.VTEP = cluster.VTEP{MAC: cluster.VTEPMAC(l.Node), VNI: 1, Port: 8472}
	switch rapid.IntRange(0, 11).Draw(t, "vtep") {
	case 0, 1:
		l.VTEP = cluster.VTEP{}
	case 2:
		l.VTEP.VNI = 2
	case 3:
		l.VTEP.Port = 4789
	case 4:
		l.VTEP.MAC = cluster.VTEPMAC("another")
	}
	return l
})

var drawSelf = rapid.Custom(func(t *rapid.T) Self {
	s := Self{
		Node:    rapid.SampledFrom([]string{"node1", "node1", "node1", "node2"}).Draw(t, "node"),
		Backend: rapid.SampledFrom([]Backend{Auto, Auto, VXLAN, Native}).Draw(t, "backend"),
		VNI:     rapid.SampledFrom([]uint32{1, 1, 1, 2}).Draw(t, "vni"), Port: 8472,
		MTU:      rapid.SampledFrom([]int{0, 0, 1400}).Draw(t, "mtu"),
		Checksum: rapid.Bool().Draw(t, "checksum"),
	}
	dev := rapid.SampledFrom([]string{"uplink0", "uplink1"})
	mtu := rapid.SampledFrom([]int{1300, 1500, 9000})
	for _, a := range drawAddresses.Draw(t, "addresses") {
		bits := rapid.SampledFrom([]int{24, 24, 32}).Draw(t, "bits")
		if a.Is6() {
			bits *= 2 // segments differ in the fourth octet
		}
		s.Underlay = append(s.Underlay, Underlay{Addr: netip.PrefixFrom(a, bits), Dev: dev.Draw(t, "dev"), MTU: mtu.Draw(t, "MTU")})
	}
	return s
})
