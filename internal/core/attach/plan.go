// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
)

// Gateways used where IPAM names none. Both are link-local, so they can never
// collide with an address of the network; the neighbour entry is permanent, so
// nothing has to answer for them.
var (
	DefaultGateway4 = netip.MustParseAddr("169.254.1.1")
	DefaultGateway6 = netip.MustParseAddr("fe80::1")
)

// ScopeLink and ScopeHost are route scopes of rtnetlink(7).
const (
	ScopeLink = 253
	ScopeHost = 254
)

// MinMTU and MaxMTU bound the MTU in bytes: RFC 791 demands 68 of every link,
// and veth takes no more than 65535. IPv6 needs MinMTU6 (RFC 8200, section 5).
const (
	MinMTU  = 68
	MinMTU6 = 1280
	MaxMTU  = 65535
)

// NewPlan derives the plan. It refuses a spec that no kernel state can satisfy:
// no address, an MTU out of range, a route whose gateway is not on the link or
// whose family the attachment does not have, a port that cannot be mapped.
func NewPlan(s Spec) (Plan, error) {
	p := Plan{
		HostIfname: s.Key.HostIfname(),
		Ifname:     s.Key.Ifname,
		Alias:      Alias(s.Instance, s.Key, s.Pod),
		HostMAC:    HostMAC,
		MAC:        s.MAC,
		MTU:        s.MTU,
		Sysctls:    s.Sysctls,
		ToPod:      s.Limits.Ingress.Bucket(),
		ToHost:     s.Limits.Egress.Bucket(),
	}
	if !p.ToHost.IsZero() {
		p.Shaper = Shaper(p.HostIfname)
	}
	if p.MAC.IsZero() {
		p.MAC = s.Key.MAC()
	}
	if len(s.Addresses) == 0 {
		return Plan{}, fmt.Errorf("attachment %s: no address", s.Key)
	}
	gateways := gatewaysOf(s.Addresses)
	for _, a := range s.Addresses {
		host := netip.PrefixFrom(a.Addr, a.Addr.BitLen())
		p.Addresses = append(p.Addresses, host)
		p.HostRoutes = append(p.HostRoutes, host)
		p.HostNeighbours = append(p.HostNeighbours, Neighbour{Addr: a.Addr, MAC: p.MAC})
	}
	for _, gw := range gateways {
		p.Neighbours = append(p.Neighbours, Neighbour{Addr: gw, MAC: p.HostMAC})
	}
	if err := checkMTU(p.MTU, p.HasIPv6()); err != nil {
		return Plan{}, fmt.Errorf("attachment %s: %w", s.Key, err)
	}
	if p.HasIPv6() {
		p.Addresses = append(p.Addresses, netip.PrefixFrom(p.MAC.LinkLocal(), 64))
	}
	for _, r := range s.Routes {
		planned, err := planRoute(r, gateways)
		if err != nil {
			return Plan{}, fmt.Errorf("attachment %s: %w", s.Key, err)
		}
		p.Routes = append(p.Routes, planned)
		p.ProxyARP = p.ProxyARP || (planned.Dst.Addr().Is4() && !planned.Gateway.IsValid())
	}
	p.Routes = append(p.Routes, subnetRoutes(s.Addresses, p.Routes)...)
	yield(p.Routes, s.Rank)
	var err error
	if p.Ports, err = Mappings(s.Ports, s.Addresses); err != nil {
		return Plan{}, fmt.Errorf("attachment %s: %w", s.Key, err)
	}
	return p, nil
}

// rankStep is how much the priority of routes grows with the rank, and
// defaultPriority6 what the kernel makes of priority 0 in IPv6
// (IP6_RT_PRIO_USER); in IPv4 it is 0 indeed.
const (
	rankStep         = 100
	defaultPriority6 = 1024
)

// yield gives the routes that name no priority the one of their rank.
func yield(routes []Route, rank int) {
	for i := range routes {
		if rank == 0 || routes[i].Priority != 0 {
			continue
		}
		routes[i].Priority = rank * rankStep
		if routes[i].Dst.Addr().Is6() {
			routes[i].Priority += defaultPriority6
		}
	}
}

func checkMTU(mtu int, ipv6 bool) error {
	least := MinMTU
	if ipv6 {
		least = MinMTU6
	}
	if mtu < least || mtu > MaxMTU {
		return fmt.Errorf("mtu %d: want %d to %d", mtu, least, MaxMTU)
	}
	return nil
}

// gatewaysOf returns the distinct gateways in the order of the addresses.
func gatewaysOf(addrs []Address) []netip.Addr {
	var gateways []netip.Addr
	for _, a := range addrs {
		gw := GatewayOf(a)
		if !contains(gateways, gw) {
			gateways = append(gateways, gw)
		}
	}
	return gateways
}

// GatewayOf returns the gateway that the plan uses for an address.
func GatewayOf(a Address) netip.Addr {
	switch {
	case a.Gateway.IsValid():
		return a.Gateway
	case a.Addr.Is4():
		return DefaultGateway4
	default:
		return DefaultGateway6
	}
}

// planRoute resolves the gateway. Only a gateway of the attachment is on the
// link; any other could not be resolved, because the far end of the link is
// the host and nobody else.
func planRoute(r Route, gateways []netip.Addr) (Route, error) {
	if r.Scope != nil && *r.Scope >= ScopeLink {
		if r.Gateway.IsValid() {
			return Route{}, fmt.Errorf("route %s: scope %d has no next hop, but gw is %s", r.Dst, *r.Scope, r.Gateway)
		}
		return r, nil
	}
	if r.Gateway.IsValid() {
		if !contains(gateways, r.Gateway) {
			return Route{}, fmt.Errorf("route %s: gw %s is not on the link; it must be one of %v", r.Dst, r.Gateway, gateways)
		}
		return r, nil
	}
	for _, gw := range gateways {
		if gw.Is4() == r.Dst.Addr().Is4() {
			r.Gateway = gw
			return r, nil
		}
	}
	return Route{}, fmt.Errorf("route %s: the attachment has no address of this family", r.Dst)
}

// subnetRoutes adds the way to the neighbours of the same subnet where no
// configured route of the main table already leads there: with a full-length
// address the kernel does not make one.
func subnetRoutes(addrs []Address, routes []Route) []Route {
	var added []Route
	for _, a := range addrs {
		if !a.Subnet.IsValid() || a.Subnet.Bits() == a.Addr.BitLen() {
			continue
		}
		covered := false
		for _, r := range append(routes, added...) {
			covered = covered || (r.inMain() && r.Dst.Overlaps(a.Subnet) && r.Dst.Bits() <= a.Subnet.Bits())
		}
		if !covered {
			added = append(added, Route{Dst: a.Subnet.Masked(), Gateway: GatewayOf(a)})
		}
	}
	return added
}

// Validate refuses what no kernel takes, whatever the attachment: a destination
// that is missing or has host bits, a number out of its range.
func (r Route) Validate() error {
	switch {
	case !r.Dst.IsValid():
		return fmt.Errorf("dst is missing")
	case r.Dst != r.Dst.Masked():
		return fmt.Errorf("dst %s has host bits: want %s", r.Dst, r.Dst.Masked())
	case r.MTU < 0 || r.MTU > MaxMTU:
		return fmt.Errorf("route %s: mtu %d: want 0 to %d", r.Dst, r.MTU, MaxMTU)
	case r.AdvMSS < 0 || r.AdvMSS > MaxMTU:
		return fmt.Errorf("route %s: advmss %d: want 0 to %d", r.Dst, r.AdvMSS, MaxMTU)
	case r.Priority < 0 || r.Priority > math.MaxUint32:
		return fmt.Errorf("route %s: priority %d: want 0 to %d", r.Dst, r.Priority, uint32(math.MaxUint32))
	case r.Table != nil && (*r.Table < 0 || *r.Table > math.MaxUint32):
		return fmt.Errorf("route %s: table %d: want 0 to %d", r.Dst, *r.Table, uint32(math.MaxUint32))
	case r.Scope != nil && (*r.Scope < 0 || *r.Scope > 255):
		return fmt.Errorf("route %s: scope %d: want 0 to 255", r.Dst, *r.Scope)
	}
	return nil
}

// MainTable is the routing table of a route that names none.
const MainTable = 254

// TableOrMain returns the table that the kernel files the route in.
func (r Route) TableOrMain() int {
	if r.Table == nil || *r.Table == 0 {
		return MainTable
	}
	return *r.Table
}

func (r Route) inMain() bool { return r.TableOrMain() == MainTable }

func contains(addrs []netip.Addr, a netip.Addr) bool {
	for _, b := range addrs {
		if a == b {
			return true
		}
	}
	return false
}

// maxAlias is the kernel's limit on IFLA_IFALIAS in bytes (IFALIASZ is 256
// with the terminating zero).
const maxAlias = 255

// Alias returns the alias of the host end: the instance and the key, by which
// a Weft with an empty memory recognizes its own, then the pod for the reader
// of `ip link`. What does not fit is cut from the end.
func Alias(instance string, k Key, pod Pod) string {
	s := "weft " + instance + " " + k.String()
	if name := pod.String(); name != "" {
		s += " " + name
	}
	if len(s) > maxAlias {
		s = s[:maxAlias]
	}
	return s
}

// ParseAlias is the inverse of Alias. It reports false for an alias that is
// not ours, or that was cut before the key's end.
func ParseAlias(alias string) (instance string, k Key, pod Pod, ok bool) {
	fields := strings.Split(alias, " ")
	if len(fields) < 3 || fields[0] != "weft" {
		return "", Key{}, Pod{}, false
	}
	k, err := ParseKey(fields[2])
	if err != nil || (len(alias) == maxAlias && len(fields) == 3) {
		return "", Key{}, Pod{}, false
	}
	if len(fields) > 3 {
		pod.Namespace, pod.Name, _ = strings.Cut(fields[3], "/")
	}
	return fields[1], k, pod, true
}
