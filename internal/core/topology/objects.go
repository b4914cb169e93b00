// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"net/netip"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// Names of the VXLAN devices, by the family of their underlay.
const (
	VXLANDevice4 = "weft-vxlan"
	VXLANDevice6 = "weft-vxlan6"
)

// Bytes that VXLAN takes of each packet: inner Ethernet, VXLAN, UDP and outer
// IP header (RFC 7348).
const (
	Overhead4 = 14 + 8 + 8 + 20
	Overhead6 = 14 + 8 + 8 + 40
)

// LinkKey is the name of a VXLAN device.
type LinkKey string

// Compare orders keys.
func (k LinkKey) Compare(o LinkKey) int { return strings.Compare(string(k), string(o)) }

// Link is a VXLAN device: no learning, no default destination, up.
type Link struct {
	VNI      uint32
	Port     uint16     // UDP, of both ends
	Local    netip.Addr // outer source; its family is the device's
	MAC      attach.MAC
	MTU      int  // bytes
	Checksum bool // leave the checksums of inner packets to the device (tx-checksum-ip-generic)
}

// AddressKey is an address on one of our devices, always of full length.
type AddressKey struct {
	Dev  string
	Addr netip.Addr
}

// Compare orders keys.
func (k AddressKey) Compare(o AddressKey) int {
	return cmp.Or(strings.Compare(k.Dev, o.Dev), k.Addr.Compare(o.Addr))
}

// Address has nothing but its key.
type Address struct{}

// NeighbourKey is an address behind one of our devices.
type NeighbourKey struct {
	Dev  string
	Addr netip.Addr
}

// Compare orders keys.
func (k NeighbourKey) Compare(o NeighbourKey) int {
	return cmp.Or(strings.Compare(k.Dev, o.Dev), k.Addr.Compare(o.Addr))
}

// Neighbour is a permanent neighbour entry.
type Neighbour struct{ MAC attach.MAC }

// FDBKey is a hardware address behind one of our devices.
type FDBKey struct {
	Dev string
	MAC attach.MAC
}

// Compare orders keys.
func (k FDBKey) Compare(o FDBKey) int {
	return cmp.Or(strings.Compare(k.Dev, o.Dev), strings.Compare(string(k.MAC[:]), string(o.MAC[:])))
}

// FDB says to which node frames for the hardware address are sent.
type FDB struct{ Dst netip.Addr }

// RouteKey is a destination, in the main table or in the local one. In the main
// table there may be a second route to it, of last resort: it is taken where no
// other one has that very destination, but comes before all shorter prefixes.
type RouteKey struct {
	Dst        netip.Prefix
	Local      bool // table local
	LastResort bool // not in table local; the route leads nowhere
}

// Compare orders keys.
func (k RouteKey) Compare(o RouteKey) int {
	return cmp.Or(
		cmp.Compare(count(k.Local), count(o.Local)), k.Dst.Compare(o.Dst),
		cmp.Compare(count(k.LastResort), count(o.LastResort)),
	)
}

// Route is where packets for a destination go. In the main table: through a
// gateway that is on the link by decree (RTNH_F_ONLINK), or nowhere, with an
// ICMP error (RTN_UNREACHABLE), where there is no gateway. In the local table:
// to the host itself; gateway and device are zero.
type Route struct {
	Gateway netip.Addr // may be IPv6 for an IPv4 destination
	Dev     string
}

// NATKey is the name of an nftables table of family inet, ours alone.
type NATKey string

// Compare orders keys.
func (k NATKey) Compare(o NATKey) int { return strings.Compare(string(k), string(o)) }

// NAT is masquerading: what comes from Sources and goes to none of Direct
// leaves with the node's address. Both are lists of ranges, ascending, merged,
// separated by spaces: the one spelling of their sets.
type NAT struct{ Sources, Direct string }

// SysctlKey is a kernel parameter below /proc/sys, such as
// "net/ipv4/ip_forward".
type SysctlKey string

// Compare orders keys.
func (k SysctlKey) Compare(o SysctlKey) int { return strings.Compare(string(k), string(o)) }

// Sysctl is a kernel parameter's value.
type Sysctl string

// Objects is everything that the kernel must hold, each with its origin.
type Objects struct {
	Links      map[LinkKey]Wanted[Link]
	Addresses  map[AddressKey]Wanted[Address]
	Neighbours map[NeighbourKey]Wanted[Neighbour]
	FDB        map[FDBKey]Wanted[FDB]
	Routes     map[RouteKey]Wanted[Route]
}

// Wanted is a value with the object that asks for it, such as
// "SubnetLease 10-42-3-0-24 of node2".
type Wanted[V any] struct {
	Value  V
	Origin string
}

// Update is one difference between two states of Objects: a new value, or,
// where Gone, none any more.
type Update[K comparable, V any] struct {
	Key K
	Wanted[V]
	Gone bool
}

// Updates lead from one state of Objects to another, ascending by key.
type Updates struct {
	Links      []Update[LinkKey, Link]
	Addresses  []Update[AddressKey, Address]
	Neighbours []Update[NeighbourKey, Neighbour]
	FDB        []Update[FDBKey, FDB]
	Routes     []Update[RouteKey, Route]
}
