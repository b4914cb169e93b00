// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
)

// minMTU is the least MTU that a VXLAN device gets on its own account. With
// less the kernel takes IPv6 off the device (RFC 8200, section 5). On an
// underlay that is too narrow for it, outer packets are fragmented.
const minMTU = 1280

// family is an address family; it indexes what there is one of for each.
type family int

const (
	ipv4 family = iota
	ipv6
)

var (
	families    = [...]family{ipv4, ipv6}
	familyNames = [...]string{"IPv4", "IPv6"}
	devices     = [...]string{VXLANDevice4, VXLANDevice6}
	overheads   = [...]int{Overhead4, Overhead6}
)

func (f family) String() string { return familyNames[f] }

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// place is Self, ready to judge leases.
type place struct {
	Self
	in [len(families)]*Underlay // nil: none in that family
}

func newPlace(s Self) place {
	s.Underlay = slices.Clone(s.Underlay)
	p := place{Self: s}
	for i := range s.Underlay {
		p.in[familyOf(s.Underlay[i].Addr.Addr())] = &s.Underlay[i]
	}
	return p
}

// devices returns of which families this node has a VXLAN device: of those
// that are used, and always of the preferred one, so that peers reach this node
// before it knows them.
func (p *place) devices(used [len(families)]bool) [len(families)]bool {
	switch {
	case p.Backend == Native:
	case p.in[ipv4] != nil:
		used[ipv4] = true
	case p.in[ipv6] != nil:
		used[ipv6] = true
	}
	return used
}

// own returns the VXLAN devices, and on each of them the gateways of this
// node's blocks: sources for what the host itself sends to a pod elsewhere,
// which peers route back through the tunnel.
func (p *place) own(devs [len(families)]bool, leases []*entry) (map[LinkKey]Wanted[Link], map[AddressKey]Wanted[Address]) {
	links := map[LinkKey]Wanted[Link]{}
	addresses := map[AddressKey]Wanted[Address]{}
	for _, f := range families {
		if !devs[f] {
			continue
		}
		links[LinkKey(devices[f])] = Wanted[Link]{Value: p.link(f), Origin: nodeOrigin + p.Node}
		for _, e := range leases {
			addresses[AddressKey{Dev: devices[f], Addr: e.gateway()}] = Wanted[Address]{Origin: e.origin}
		}
	}
	return links, addresses
}

func (p *place) link(f family) Link {
	u := p.in[f]
	mtu := p.MTU
	if mtu == 0 {
		mtu = max(u.MTU-overheads[f], minMTU)
	}
	return Link{
		VNI: p.VNI, Port: p.Port, Local: u.Addr.Addr(),
		MAC: cluster.VTEPMAC(p.Node), MTU: mtu, Checksum: p.Checksum,
	}
}
