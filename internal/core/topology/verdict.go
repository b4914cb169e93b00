// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"strings"
)

// verdict is how a lease is reached, or why it is not.
type verdict struct {
	way      Way
	over     family // of the underlay; of ByRoute and ByVXLAN
	rejected bool   // then way is Unreachable
	reason   string // of Unreachable
}

// judge decides on one lease. known tells whether its node is, rival is the
// older lease with which it conflicts, or nil.
func (p *place) judge(e *entry, known bool, rival *entry) verdict {
	if reason := p.objection(e, known, rival); reason != "" {
		return verdict{way: Unreachable, rejected: true, reason: reason}
	}
	if e.node == p.Node {
		return verdict{way: Local}
	}
	native, isNative := p.native(e)
	if isNative && p.takesNative(e) {
		return verdict{way: ByRoute, over: native}
	}
	if tunnel, ok := p.tunnel(e); ok {
		return verdict{way: ByVXLAN, over: tunnel}
	}
	return verdict{way: Unreachable, reason: p.noWay(e)}
}

// objection says why the lease is rejected; "" if it is not. Of the reasons
// those that hold on every node come first: only they let a younger lease have
// what this one claims, so that all nodes agree on the holder.
func (p *place) objection(e *entry, known bool, rival *entry) string {
	if flaw := e.flaw(known || e.node == p.Node); flaw != "" {
		return flaw
	}
	if rival != nil {
		if rival.created == e.created {
			return e.conflict(rival) + ", which is as old and has the lesser name"
		}
		return e.conflict(rival) + ", which is older"
	}
	for _, u := range p.Underlay {
		if u.Addr.Masked().Overlaps(e.subnet) {
			return fmt.Sprintf("overlaps %s, the network of %s on %s, which would be cut off", u.Addr.Masked(), u.Dev, p.Node)
		}
		if a := e.addrs[familyOf(u.Addr.Addr())]; a == u.Addr.Addr() && e.node != p.Node {
			return fmt.Sprintf("node address %s is that of %s", a, p.Node)
		}
	}
	return ""
}

// takesNative reports whether the native way is preferred, or the only one.
func (p *place) takesNative(e *entry) bool { return p.Backend != VXLAN || !e.hasVTEP() }

// native returns the family in which the peer is on the segment of one of this
// node's addresses. An IPv4 route may have an IPv6 gateway (Linux 5.2), but not
// the other way round.
func (p *place) native(e *entry) (family, bool) {
	for f := familyOf(e.subnet.Addr()); int(f) < len(families); f++ {
		if u := p.in[f]; u != nil && u.Addr.Contains(e.addrs[f]) {
			return f, true
		}
	}
	return 0, false
}

// tunnel returns the family of the underlay by which VXLAN reaches the peer.
func (p *place) tunnel(e *entry) (family, bool) {
	if p.Backend == Native || !e.hasVTEP() || e.vtep.VNI != p.VNI || e.vtep.Port != p.Port {
		return 0, false
	}
	for _, f := range families {
		if p.in[f] != nil && e.addrs[f].IsValid() {
			return f, true
		}
	}
	return 0, false
}

// noWay names every way, and what is in it.
func (p *place) noWay(e *entry) string {
	var ways []string
	if p.takesNative(e) {
		for f := familyOf(e.subnet.Addr()); int(f) < len(families); f++ {
			ways = append(ways, fmt.Sprintf("native over %s: %s", f, p.noSegment(e, f)))
		}
	} else {
		ways = append(ways, "native: backend vxlan takes it to nodes without VTEP only")
	}
	return strings.Join(append(ways, "VXLAN: "+p.noTunnel(e)), "; ")
}

func (p *place) noSegment(e *entry, f family) string {
	switch u := p.in[f]; {
	case u == nil:
		return p.Node + " has no address"
	case !e.addrs[f].IsValid():
		return e.node + " has no address"
	default:
		return fmt.Sprintf("%s is not on %s, the network of %s", e.addrs[f], u.Addr.Masked(), u.Dev)
	}
}

func (p *place) noTunnel(e *entry) string {
	switch {
	case p.Backend == Native:
		return "backend native does not take it"
	case !e.hasVTEP():
		return e.node + " has no VTEP"
	case e.vtep.VNI != p.VNI || e.vtep.Port != p.Port:
		return fmt.Sprintf("%s has VNI %d and port %d, %s has VNI %d and port %d",
			e.node, e.vtep.VNI, e.vtep.Port, p.Node, p.VNI, p.Port)
	default:
		return fmt.Sprintf("%s and %s have no address of the same family", p.Node, e.node)
	}
}

// reach is the verdict, for people.
func (p *place) reach(e *entry, v verdict) Reach {
	r := Reach{Lease: e.name, Node: e.node, Subnet: e.subnet, Way: v.way, Reason: v.reason}
	switch v.way {
	case ByRoute:
		r.Via, r.Dev = e.addrs[v.over], p.in[v.over].Dev
	case ByVXLAN:
		r.Via, r.Dev = e.addrs[v.over], devices[v.over]
	}
	return r
}
