// SPDX-License-Identifier: Apache-2.0

package topology

import "weft.dev/weft/internal/core/attach"

// footprint is the objects that follow from one lease alone: a route, and a
// neighbour entry where the way is VXLAN. The zero value is none.
type footprint struct {
	way    Way // "": no object
	key    RouteKey
	route  Route
	mac    attach.MAC // of the neighbour entry
	origin string
}

func (p *place) footprint(e *entry, v verdict) footprint {
	fp := footprint{way: v.way, key: RouteKey{Dst: e.subnet}, origin: e.origin}
	switch v.way {
	case Local:
		// What leads to a pod itself is not the fabric's. Its destination is that
		// of the pod's lease, and it must win.
		fp.key.LastResort = e.ofPod
	case ByRoute:
		fp.route = Route{Gateway: e.addrs[v.over], Dev: p.in[v.over].Dev}
	case ByVXLAN:
		fp.route, fp.mac = Route{Gateway: e.gateway(), Dev: devices[v.over]}, e.mac
	default:
		return footprint{}
	}
	return fp
}

func (fp footprint) routing() (RouteKey, Wanted[Route], bool) {
	return fp.key, Wanted[Route]{Value: fp.route, Origin: fp.origin}, fp.way != ""
}

// neighbour returns the neighbour entry: of the route's gateway.
func (fp footprint) neighbour() (NeighbourKey, Wanted[Neighbour], bool) {
	if fp.way != ByVXLAN {
		return NeighbourKey{}, Wanted[Neighbour]{}, false
	}
	return NeighbourKey{Dev: fp.route.Dev, Addr: fp.route.Gateway},
		Wanted[Neighbour]{Value: Neighbour{MAC: fp.mac}, Origin: fp.origin}, true
}

// ownBlock reports whether the lease is of a block of this node.
func (fp footprint) ownBlock() bool { return fp.way == Local && !fp.key.LastResort }

// uses reports whether the lease is reached by the VXLAN device of a family.
func (fp footprint) uses(f family) bool { return fp.way == ByVXLAN && fp.route.Dev == devices[f] }
