// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/kernel"
)

// expectation reads from the runtime's last result what CHECK must find: the
// plan of ADD, less the routes and addresses that a later plugin of the chain
// took away, plus the addresses and with the MAC that it gave. MTU is not
// compared: tuning changes it without saying so in the result.
func expectation(call cni.Call, prev *cni.Result) (engine.Expected, *cni.Error) {
	inside := slices.IndexFunc(prev.Interfaces, func(i cni.Interface) bool {
		return i.Name == call.Ifname && i.Sandbox != ""
	})
	if len(prev.Interfaces) > 0 && inside < 0 {
		return nil, cni.Errorf(cni.CodeConfig, "prevResult: no interface %q inside a sandbox; it must be the result of the last ADD", call.Ifname)
	}
	return func(p attach.Plan) (attach.Plan, kernel.CompareOptions) {
		p.Addresses = expectedAddresses(p.Addresses, prev, inside)
		p.Routes = slices.DeleteFunc(p.Routes, func(r attach.Route) bool {
			return !slices.ContainsFunc(prev.Routes, func(q attach.Route) bool { return q.Dst == r.Dst })
		})
		if inside < 0 {
			return p, kernel.CompareOptions{}
		}
		return expectedLink(p, prev.Interfaces[inside])
	}, nil
}

// expectedAddresses returns the planned addresses that the result still lists,
// the link-local one that no result lists, and what else the result says that
// our interface has.
func expectedAddresses(planned []netip.Prefix, prev *cni.Result, inside int) []netip.Prefix {
	var addrs []netip.Prefix
	for _, a := range planned {
		listed := slices.ContainsFunc(prev.IPs, func(ip cni.IP) bool { return ip.Address.Addr() == a.Addr() })
		if listed || a.Addr().IsLinkLocalUnicast() {
			addrs = append(addrs, a)
		}
	}
	for _, ip := range prev.IPs {
		ours := ip.Interface != nil && *ip.Interface == inside
		if ours && !slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Addr() == ip.Address.Addr() }) {
			addrs = append(addrs, ip.Address)
		}
	}
	return addrs
}

// expectedLink compares the MAC with the result where that has one.
func expectedLink(p attach.Plan, link cni.Interface) (attach.Plan, kernel.CompareOptions) {
	mac, known := cni.ParseMAC(link.MAC)
	if !known {
		return p, kernel.CompareOptions{}
	}
	if mac != p.MAC {
		// The kernel forgot the neighbours of the interface when its address
		// changed, and learned the new one on the host's side.
		p.MAC, p.Neighbours = mac, nil
		for i := range p.HostNeighbours {
			p.HostNeighbours[i].MAC = mac
		}
	}
	return p, kernel.CompareOptions{MAC: true}
}
