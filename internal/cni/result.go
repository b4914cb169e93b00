// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/attach"
)

// Result is what ADD answers, with all that version 1.1.0 can say. The zero
// value is an empty result.
type Result struct {
	Interfaces []Interface
	IPs        []IP
	Routes     []attach.Route
	DNS        DNS
}

// Interface is one interface, of the host (Sandbox empty) or of a sandbox.
type Interface struct {
	Name       string
	MAC        string
	MTU        int    // bytes; 0: not said. Since 1.1.0
	Sandbox    string // CNI_NETNS, to the letter
	SocketPath string // of a vhost-user device. Since 1.1.0
	PciID      string // of a physical device. Since 1.1.0
}

// IP is one address of an interface.
type IP struct {
	Interface *int         // index into Interfaces; nil: not said, as in an IPAM plugin's answer
	Address   netip.Prefix // with host bits and the length of the subnet
	Gateway   netip.Addr   // zero: none
}

// Append returns prev with r behind it, as a chained plugin answers: r's
// interface indices are shifted past prev's interfaces. Of DNS, r's domain
// wins; the lists are joined without repetition. Nothing of prev is lost, and
// the answer shares no memory with either.
func (r Result) Append(prev Result) Result {
	return Result{
		Interfaces: slices.Concat(prev.Interfaces, r.Interfaces),
		IPs:        slices.Concat(shifted(prev.IPs, 0), shifted(r.IPs, len(prev.Interfaces))),
		Routes:     copyRoutes(slices.Concat(prev.Routes, r.Routes)),
		DNS:        joinDNS(prev.DNS, r.DNS),
	}
}

// shifted copies addresses and moves their interface index by n.
func shifted(ips []IP, n int) []IP {
	moved := slices.Clone(ips)
	for i, ip := range moved {
		if ip.Interface != nil {
			moved[i].Interface = new(*ip.Interface + n)
		}
	}
	return moved
}

// copyRoutes replaces the pointers in a list by pointers to copies.
func copyRoutes(routes []attach.Route) []attach.Route {
	for i, r := range routes {
		if r.Table != nil {
			routes[i].Table = new(*r.Table)
		}
		if r.Scope != nil {
			routes[i].Scope = new(*r.Scope)
		}
	}
	return routes
}

func joinDNS(prev, next DNS) DNS {
	joined := DNS{
		Nameservers: union(prev.Nameservers, next.Nameservers),
		Domain:      next.Domain,
		Search:      union(prev.Search, next.Search),
		Options:     union(prev.Options, next.Options),
	}
	if joined.Domain == "" {
		joined.Domain = prev.Domain
	}
	return joined
}

// union appends to a copy of a what of b is not in a.
func union(a, b []string) []string {
	joined := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(a, s) {
			joined = append(joined, s)
		}
	}
	return joined
}
