// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/topology"
)

// fibMatch is RTM_F_FIB_MATCH, rtnetlink.h: answer with the route itself, not
// with what follows from it for one packet. Linux 4.13.
const fibMatch = 0x2000

// matchRoute asks for the route that a packet to the address takes.
func matchRoute(a netip.Addr, into *route) *message {
	m := lookUpRoute(a, into)
	m.req.Data[0].(*nl.RtMsg).Flags = fibMatch
	return m
}

func describeFabricRoute(k topology.RouteKey, v topology.Route) string {
	switch {
	case k.Local:
		return "local " + k.Dst.String() + " dev lo table local"
	case !v.Gateway.IsValid():
		if k.LastResort {
			return fmt.Sprintf("unreachable %s metric %d", k.Dst, routeMetric(k))
		}
		return "unreachable " + k.Dst.String()
	}
	return k.Dst.String() + " via " + v.Gateway.String() + " dev " + v.Dev
}

// newRoute adds or, depending on the flags, replaces a route.
func (w *routeWriter) newRoute(op routeOp, flags int) *message {
	h, attributes := fabricRoute(op.Key, op.Want)
	switch {
	case op.Key.Local:
		attributes = append(attributes, u32(unix.RTA_OIF, loopbackIndex))
	case op.Want.Gateway.IsValid():
		attributes = append(attributes, u32(unix.RTA_OIF, w.indexes[op.Want.Dev]))
	}
	return &message{
		op: "add route", object: describeFabricRoute(op.Key, op.Want),
		req: request(unix.RTM_NEWROUTE, flags, h, attributes...),
	}
}

// deleteFabricRoute deletes the route that was observed. The gateway is enough
// to know it by: its device may be gone.
func deleteFabricRoute(k topology.RouteKey, v topology.Route) *message {
	h, attributes := fabricRoute(k, v)
	h.Scope = unix.RT_SCOPE_NOWHERE // any
	return &message{
		op: "delete route", object: describeFabricRoute(k, v),
		req: request(unix.RTM_DELROUTE, 0, h, attributes...),
	}
}

// deleteRoute deletes a route of ours as it was read, whatever became of it.
func deleteRoute(k topology.RouteKey, r route) *message {
	h := routeHeader(r.dst, r.kind, RouteProtocol)
	h.Table, h.Scope = uint8(r.table), unix.RT_SCOPE_NOWHERE
	attributes := []*nl.RtAttr{addr(unix.RTA_DST, r.dst.Addr())}
	if r.priority != 0 {
		attributes = append(attributes, u32(unix.RTA_PRIORITY, r.priority))
	}
	switch {
	case r.gateway.IsValid():
		attributes = append(attributes, gateway(r.dst, r.gateway))
	case r.oif != 0:
		attributes = append(attributes, u32(unix.RTA_OIF, r.oif))
	}
	return &message{
		op: "delete route", object: describeFabricRoute(k, topology.Route{Gateway: r.gateway}),
		req: request(unix.RTM_DELROUTE, 0, h, attributes...),
	}
}

// fabricRoute writes what a route is known by.
func fabricRoute(k topology.RouteKey, v topology.Route) (*nl.RtMsg, []*nl.RtAttr) {
	kind, table, scope := unix.RTN_UNREACHABLE, unix.RT_TABLE_MAIN, unix.RT_SCOPE_UNIVERSE
	switch {
	case k.Local:
		kind, table, scope = unix.RTN_LOCAL, unix.RT_TABLE_LOCAL, unix.RT_SCOPE_HOST
	case v.Gateway.IsValid():
		kind = unix.RTN_UNICAST
	}
	h := routeHeader(k.Dst, kind, RouteProtocol)
	h.Table, h.Scope = uint8(table), uint8(scope)
	attributes := []*nl.RtAttr{addr(unix.RTA_DST, k.Dst.Addr())}
	if metric := routeMetric(k); metric != 0 {
		attributes = append(attributes, u32(unix.RTA_PRIORITY, metric))
	}
	if v.Gateway.IsValid() {
		h.Flags = unix.RTNH_F_ONLINK
		attributes = append(attributes, gateway(k.Dst, v.Gateway))
	}
	return h, attributes
}

// gateway writes the next hop, which may be of the other family (Linux 5.2).
func gateway(dst netip.Prefix, gw netip.Addr) *nl.RtAttr {
	if dst.Addr().Is4() == gw.Is4() {
		return addr(unix.RTA_GATEWAY, gw)
	}
	family := nl.Uint16Attr(uint16(familyOf(gw)))
	return nl.NewRtAttr(unix.RTA_VIA, append(family, gw.AsSlice()...))
}
