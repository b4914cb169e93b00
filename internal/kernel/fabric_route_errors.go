// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"

	"weft.dev/weft/internal/core/topology"
)

// ForeignRouteError says that there is a route to a destination that is not
// ours to change. Nothing was changed.
type ForeignRouteError struct {
	Dst      netip.Prefix
	Gateway  netip.Addr // zero: none
	Device   string     // "" if unknown
	Protocol int        // rtm_protocol
	Metric   int
}

func (e *ForeignRouteError) Error() string {
	s := e.Dst.String()
	if e.Gateway.IsValid() {
		s += " via " + e.Gateway.String()
	}
	if e.Device != "" {
		s += " dev " + e.Device
	}
	return fmt.Sprintf("add route %s: the host has a route to it that this driver did not make (%s proto %d metric %d); "+
		"delete it, or give the network another address range", e.Dst, s, e.Protocol, e.Metric)
}

// PodRouteError says that there is still the host route of a pod to a
// destination that is another node's now: of a former sandbox, as a rule. Nothing
// was changed. The route goes with the pod's interface.
type PodRouteError struct {
	Dst    netip.Prefix
	Device string // the pod's host end; "" if it has just gone
}

func (e *PodRouteError) Error() string {
	device := e.Device
	if device == "" {
		device = "an interface that has just gone"
	}
	return fmt.Sprintf("add route %s: the former sandbox behind %s still has the address; its route goes with the DEL of that sandbox", e.Dst, device)
}

// Awaits implements reconcile.Awaiting.
func (e *PodRouteError) Awaits() bool { return true }

// routeInTheWay says what is in the way.
func routeInTheWay(k topology.RouteKey, r route, names *linkNames) error {
	l := names.link(r.oif)
	if r.protocol == RouteProtocol && r.podRoute() && (l.ours() || l.index == 0) {
		return &PodRouteError{Dst: k.Dst, Device: l.name}
	}
	return &ForeignRouteError{Dst: k.Dst, Gateway: r.gateway, Device: l.name, Protocol: r.protocol, Metric: r.priority}
}
