// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// This file writes rtnetlink requests; decode.go reads the answers. Numbers
// that package unix lacks are from the kernel's include/uapi/linux.
const (
	// RouteProtocol marks the routes that Weft makes (rtnetlink(7),
	// rtm_protocol). It is not in the kernel's or iproute2's lists.
	RouteProtocol = 119

	vethInfoPeer      = 1  // VETH_INFO_PEER, veth.h
	inet6AddrGenMode  = 8  // IFLA_INET6_ADDR_GEN_MODE, if_link.h; Linux 3.17
	addrGenModeNone   = 1  // IN6_ADDR_GEN_MODE_NONE
	inetConf          = 1  // IFLA_INET_CONF, if_link.h
	ipv4ConfProxyARP  = 3  // IPV4_DEVCONF_PROXY_ARP, ip.h
	ipv4ConfARPNotify = 22 // IPV4_DEVCONF_ARP_NOTIFY, ip.h
	// ipv4ConfRouteLocalnet is IPV4_DEVCONF_ROUTE_LOCALNET, ip.h.
	ipv4ConfRouteLocalnet = 26
	filterSkipStats       = 1 << 3 // RTEXT_FILTER_SKIP_STATS: 200 bytes of counters per link
	neighbourPermanent    = 0x80   // NUD_PERMANENT, neighbour.h
	neighbourStale        = 0x04   // NUD_STALE: valid, to be confirmed when used
	neighbourReachable    = 0x02   // NUD_REACHABLE
	neighbourDelay        = 0x08   // NUD_DELAY
	neighbourProbe        = 0x10   // NUD_PROBE
	neighbourNoARP        = 0x40   // NUD_NOARP: for a forwarding entry, static
	neighbourValid        = neighbourPermanent | neighbourStale | neighbourReachable | neighbourDelay | neighbourProbe
	neighbourExtLearned   = 0x10 // NTF_EXT_LEARNED: not subject to garbage collection
)

const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL

// attrs nests attributes under one of the given type.
func attrs(kind int, children ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(kind, nil)
	for _, c := range children {
		a.AddChild(c)
	}
	return a
}

func u32(kind, v int) *nl.RtAttr { return nl.NewRtAttr(kind, nl.Uint32Attr(uint32(v))) }

func text(kind int, s string) *nl.RtAttr { return nl.NewRtAttr(kind, nl.ZeroTerminated(s)) }

func addr(kind int, a netip.Addr) *nl.RtAttr { return nl.NewRtAttr(kind, a.AsSlice()) }

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func request(kind, flags int, header nl.NetlinkRequestData, attributes ...*nl.RtAttr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	req.AddData(header)
	for _, a := range attributes {
		req.AddData(a)
	}
	return req
}

func linkHeader(index int) *nl.IfInfomsg {
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = int32(index)
	return m
}

// addVeth creates both ends, each in its final namespace, with name, MAC and
// MTU, and down. The alias cannot be given: the kernel ignores it here.
func addVeth(p attach.Plan, ns *Netns) *message {
	end := func(name string, mac attach.MAC) []*nl.RtAttr {
		return []*nl.RtAttr{
			text(unix.IFLA_IFNAME, name), nl.NewRtAttr(unix.IFLA_ADDRESS, mac[:]), u32(unix.IFLA_MTU, p.MTU),
			// One queue is all that the kernel uses of those that it would
			// allocate; to stop using the others it waits for an RCU grace
			// period, with RTNL held, for each end (veth_init_queues).
			u32(unix.IFLA_NUM_TX_QUEUES, 1), u32(unix.IFLA_NUM_RX_QUEUES, 1),
		}
	}
	peer := nl.NewRtAttr(vethInfoPeer, nil)
	peer.AddChild(linkHeader(0))
	for _, a := range append(end(p.Ifname, p.MAC), u32(unix.IFLA_NET_NS_FD, ns.fd)) {
		peer.AddChild(a)
	}
	info := attrs(unix.IFLA_LINKINFO,
		nl.NewRtAttr(unix.IFLA_INFO_KIND, []byte(kindVeth)),
		attrs(unix.IFLA_INFO_DATA, peer))
	return &message{
		op:     "add link",
		object: fmt.Sprintf("%s with peer %s in sandbox %s", p.HostIfname, p.Ifname, ns.Path),
		req:    request(unix.RTM_NEWLINK, create, linkHeader(0), append(end(p.HostIfname, p.HostMAC), info)...),
	}
}

// getLink asks for one link, by index or (where that is 0) by name.
func getLink(index int, name string, into *link) *message {
	m := &message{op: "look up link", object: name, reply: func(body []byte) (err error) {
		*into, err = parseLink(body)
		return err
	}}
	attributes := []*nl.RtAttr{u32(unix.IFLA_EXT_MASK, filterSkipStats)}
	if index == 0 {
		attributes = append(attributes, text(unix.IFLA_IFNAME, name))
	}
	m.req = request(unix.RTM_GETLINK, 0, linkHeader(index), attributes...)
	return m
}

// setLink changes attributes of a link.
func setLink(op, name string, index int, attributes ...*nl.RtAttr) *message {
	return &message{op: op, object: name, req: request(unix.RTM_SETLINK, 0, linkHeader(index), attributes...)}
}

// setAlias and proxy ARP travel with nothing else, because a kernel may refuse
// the others.
func setAlias(name string, index int, alias string) *message {
	return setLink("set alias of", name, index, nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias)))
}

func setProxyARP(name string, index int) *message {
	return setLink("enable proxy ARP on", name, index, attrs(unix.IFLA_AF_SPEC,
		attrs(unix.AF_INET, attrs(inetConf, u32(ipv4ConfProxyARP, 1)))))
}

// setRouteLocalnet lets packets from and to 127.0.0.0/8 pass the link.
func setRouteLocalnet(name string, index int) *message {
	return setLink("enable route_localnet on", name, index, attrs(unix.IFLA_AF_SPEC,
		attrs(unix.AF_INET, attrs(inetConf, u32(ipv4ConfRouteLocalnet, 1)))))
}

// setNotify makes the link announce its IPv4 addresses when its hardware
// address changes.
func setNotify(name string, index int) *message {
	return setLink("enable ARP announcements on", name, index, attrs(unix.IFLA_AF_SPEC,
		attrs(unix.AF_INET, attrs(inetConf, u32(ipv4ConfARPNotify, 1)))))
}

// setNoLinkLocal stops the kernel from giving the link an IPv6 link-local
// address when it comes up, and with it all that such an address says.
func setNoLinkLocal(name string, index int) *message {
	return setLink("disable IPv6 address generation on", name, index, attrs(unix.IFLA_AF_SPEC,
		attrs(unix.AF_INET6, nl.NewRtAttr(inet6AddrGenMode, nl.Uint8Attr(addrGenModeNone)))))
}

func setUp(name string, index int) *message {
	h := linkHeader(index)
	h.Flags, h.Change = unix.IFF_UP, unix.IFF_UP
	return &message{op: "set up", object: name, req: request(unix.RTM_SETLINK, 0, h)}
}

func setGroup(name string, index int, group uint32) *message {
	return setLink("set group of", name, index, nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
}

func delLink(name string, index int) *message {
	return &message{op: "delete link", object: name, req: request(unix.RTM_DELLINK, 0, linkHeader(index))}
}

func delGroup(group uint32) *message {
	return &message{op: "delete links of group", object: fmt.Sprintf("%#x", group),
		req: request(unix.RTM_DELLINK, 0, linkHeader(0), nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))}
}

// addAddress gives the link an address that is valid at once. A prefix route
// is wanted only for link-local IPv6, which is on the link by definition
// (RFC 4291, section 2.5.6); any other way is in the plan.
func addAddress(p netip.Prefix, ifname string, index int) *message {
	family := familyOf(p.Addr())
	flags := 0
	if family == unix.AF_INET6 {
		flags |= unix.IFA_F_NODAD
	}
	if !p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast() {
		flags |= unix.IFA_F_NOPREFIXROUTE
	}
	h := nl.NewIfAddrmsg(family)
	h.Prefixlen = uint8(p.Bits())
	h.Index = uint32(index)
	return &message{
		op: "add address", object: fmt.Sprintf("%s dev %s", p, ifname),
		req: request(unix.RTM_NEWADDR, create, h,
			addr(unix.IFA_LOCAL, p.Addr()), addr(unix.IFA_ADDRESS, p.Addr()), u32(unix.IFA_FLAGS, flags)),
	}
}

// neighbourHeader is struct ndmsg.
type neighbourHeader struct {
	family uint8
	index  uint32
	state  uint16
	flags  uint8
}

func (h neighbourHeader) Len() int { return unix.SizeofNdMsg }

func (h neighbourHeader) Serialize() []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = h.family
	nl.NativeEndian().PutUint32(b[4:], h.index)
	nl.NativeEndian().PutUint16(b[8:], h.state)
	b[10] = h.flags
	return b
}

func addNeighbour(n attach.Neighbour, ifname string, index int) *message {
	return neighbourMessage(n, ifname, neighbourHeader{family: uint8(familyOf(n.Addr)), index: uint32(index), state: neighbourPermanent})
}

// addPodNeighbour makes the host know a pod's hardware address. In IPv4 the
// entry is used at once and never collected, like a permanent one, but follows
// the pod when a later plugin of the chain gives it another address: the pod
// announces that (see setNotify). In IPv6 the host end has no address from
// which it could ask, so the entry is permanent.
func addPodNeighbour(n attach.Neighbour, ifname string, index int) *message {
	h := neighbourHeader{family: uint8(familyOf(n.Addr)), index: uint32(index), state: neighbourPermanent}
	if n.Addr.Is4() {
		h.state, h.flags = neighbourStale, neighbourExtLearned
	}
	return neighbourMessage(n, ifname, h)
}

func neighbourMessage(n attach.Neighbour, ifname string, h neighbourHeader) *message {
	return &message{
		op: "add neighbour", object: fmt.Sprintf("%s lladdr %s dev %s", n.Addr, n.MAC, ifname),
		req: request(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, h,
			addr(unix.NDA_DST, n.Addr), nl.NewRtAttr(unix.NDA_LLADDR, n.MAC[:])),
	}
}

// addRoute adds a route of the plan in the sandbox. Its gateway is on the
// link by decree (RTNH_F_ONLINK; for IPv6 since Linux 4.16): no other route
// leads to it.
func addRoute(r attach.Route, ifname string, index int) *message {
	h := routeHeader(r.Dst, unix.RTN_UNICAST, unix.RTPROT_STATIC)
	attributes := []*nl.RtAttr{u32(unix.RTA_OIF, index), u32(unix.RTA_TABLE, r.TableOrMain())}
	h.Table = unix.RT_TABLE_UNSPEC // overridden by the attribute, which holds more than 8 bits
	if r.Scope != nil {
		h.Scope = uint8(*r.Scope)
	}
	if r.Dst.Bits() > 0 {
		attributes = append(attributes, addr(unix.RTA_DST, r.Dst.Addr()))
	}
	if r.Gateway.IsValid() {
		h.Flags |= unix.RTNH_F_ONLINK
		attributes = append(attributes, addr(unix.RTA_GATEWAY, r.Gateway))
	}
	if r.Priority != 0 {
		attributes = append(attributes, u32(unix.RTA_PRIORITY, r.Priority))
	}
	if m := routeMetrics(r); m != nil {
		attributes = append(attributes, m)
	}
	return &message{
		op: "add route", object: describeRoute(r) + " dev " + ifname,
		req: request(unix.RTM_NEWROUTE, create, h, attributes...),
	}
}

func routeMetrics(r attach.Route) *nl.RtAttr {
	var metrics []*nl.RtAttr
	if r.MTU != 0 {
		metrics = append(metrics, u32(unix.RTAX_MTU, r.MTU))
	}
	if r.AdvMSS != 0 {
		metrics = append(metrics, u32(unix.RTAX_ADVMSS, r.AdvMSS))
	}
	if metrics == nil {
		return nil
	}
	return attrs(unix.RTA_METRICS, metrics...)
}

func describeRoute(r attach.Route) string {
	s := r.Dst.String()
	if r.Gateway.IsValid() {
		s += " via " + r.Gateway.String()
	}
	if t := r.TableOrMain(); t != attach.MainTable {
		s += fmt.Sprintf(" table %d", t)
	}
	if r.Priority != 0 {
		s += fmt.Sprintf(" metric %d", r.Priority)
	}
	return s
}

func routeHeader(dst netip.Prefix, kind, protocol int) *nl.RtMsg {
	h := nl.NewRtMsg()
	h.Family = uint8(familyOf(dst.Addr()))
	h.Dst_len = uint8(dst.Bits())
	h.Type = uint8(kind)
	h.Protocol = uint8(protocol)
	return h
}

// addHostRoute leads to a pod's address by its host end.
func addHostRoute(dst netip.Prefix, ifname string, index int) *message {
	h := routeHeader(dst, unix.RTN_UNICAST, RouteProtocol)
	h.Scope = unix.RT_SCOPE_LINK
	return &message{
		op: "add route", object: fmt.Sprintf("%s dev %s", dst, ifname),
		req: request(unix.RTM_NEWROUTE, create, h, addr(unix.RTA_DST, dst.Addr()), u32(unix.RTA_OIF, index)),
	}
}

// localRoute makes the host answer for an address without having it on an
// interface. Loopback has index 1 in every network namespace.
func localRoute(kind, flags int, op string, a netip.Addr) *message {
	dst := netip.PrefixFrom(a, a.BitLen())
	h := routeHeader(dst, unix.RTN_LOCAL, RouteProtocol)
	h.Table = unix.RT_TABLE_LOCAL
	h.Scope = unix.RT_SCOPE_HOST
	return &message{
		op: op, object: fmt.Sprintf("local %s dev lo table local", a),
		req: request(kind, flags, h, addr(unix.RTA_DST, a), u32(unix.RTA_OIF, loopbackIndex)),
	}
}

const loopbackIndex = 1

// lookUpRoute asks which route a packet to the address would take.
func lookUpRoute(a netip.Addr, into *route) *message {
	h := nl.NewRtMsg()
	*h = nl.RtMsg{}
	h.Family = uint8(familyOf(a))
	h.Dst_len = uint8(a.BitLen())
	return &message{
		op: "look up route to", object: a.String(),
		req: request(unix.RTM_GETROUTE, 0, h, addr(unix.RTA_DST, a)),
		reply: func(body []byte) (err error) {
			*into, err = parseRoute(body)
			return err
		},
	}
}
