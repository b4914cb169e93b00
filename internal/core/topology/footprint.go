// SPDX-License-Identifier: Apache-2.0

package topology

import "weft.dev/weft/internal/core/attach"

// footprint is the objects that follow from one lease alone: a route, and a
// neighbour entry where the way is VXLAN. The zero value is none; this node's
// own leases of pods have none: the pod's host route has that destination.
type footprint struct {
	way    Way // "": no object
	route  Route
	mac    attach.MAC // of the neighbour entry
	origin string
}

func (p *place) footprint(e *entry, v verdict) footprint {
	switch v.way {
	case Local:
		if !e.ofPod {
			return footprint{way: Local, origin: e.origin}
		}
	case ByRoute:
		return footprint{way: ByRoute, route: Route{Gateway: e.addrs[v.over], Dev: p.in[v.over].Dev}, origin: e.origin}
	case ByVXLAN:
		return footprint{
			way: ByVXLAN, route: Route{Gateway: e.gateway(), Dev: devices[v.over]}, mac: e.mac, origin: e.origin,
		}
	}
	return footprint{}
}

func (fp footprint) routing() (Wanted[Route], bool) {
	return Wanted[Route]{Value: fp.route, Origin: fp.origin}, fp.way != ""
}

// neighbour returns the neighbour entry: of the route's gateway.
func (fp footprint) neighbour() (NeighbourKey, Wanted[Neighbour], bool) {
	if fp.way != ByVXLAN {
		return NeighbourKey{}, Wanted[Neighbour]{}, false
	}
	return NeighbourKey{Dev: fp.route.Dev, Addr: fp.route.Gateway},
		Wanted[Neighbour]{Value: Neighbour{MAC: fp.mac}, Origin: fp.origin}, true
}

// uses reports whether the lease is reached by the VXLAN device of a family.
func (fp footprint) uses(f family) bool { return fp.way == ByVXLAN && fp.route.Dev == devices[f] }
