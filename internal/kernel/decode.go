// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

const (
	kindVeth  = "veth"
	kindVXLAN = "vxlan"
	kindIFB   = "ifb"
	aliasMark = attach.HostIfnamePrefix + " " // how attach.Alias begins
)

// link is what RTM_NEWLINK tells.
type link struct {
	index     int
	peerIndex int // IFLA_LINK: for veth the other end's index, in its namespace
	name      string
	kind      string // "" for hardware
	alias     string
	mac       attach.MAC
	mtu       int
	up        bool
	group     uint32
	proxyARP  bool
	// routeLocalnet: packets from and to 127.0.0.0/8 may pass.
	routeLocalnet bool
	vxlan         vxlan // of that kind only
}

// vxlan is what IFLA_INFO_DATA tells of a VXLAN device.
type vxlan struct {
	vni      uint32
	port     uint16
	local    netip.Addr
	learning bool
	// remote: frames without an FDB entry go somewhere; external: where they go
	// is decided elsewhere (IFLA_VXLAN_COLLECT_METADATA). Ours are neither.
	remote, external bool
}

// ours reports whether the link bears our mark (see the package comment).
func (l link) ours() bool {
	name := l.name
	switch l.kind {
	case kindVeth:
	case kindIFB:
		name, _ = attach.ShapedBy(l.name)
	default:
		return false
	}
	return strings.HasPrefix(l.alias, aliasMark) || (l.alias == "" && isHostIfname(name))
}

// isHostIfname reports whether the name has the form of attach.Key.HostIfname:
// as long as names may be, the prefix, and lower-case base32.
func isHostIfname(name string) bool {
	hash, ok := strings.CutPrefix(name, attach.HostIfnamePrefix)
	return ok && len(name) == unix.IFNAMSIZ-1 && strings.Trim(hash, "0123456789abcdefghijklmnopqrstuv") == ""
}

// parseAttrs calls fn for each attribute after the fixed header. (The parser
// of package nl does not survive a last attribute without padding.)
func parseAttrs(body []byte, header int, fn func(kind int, value []byte)) error {
	if len(body) < header {
		return fmt.Errorf("netlink answer of %d bytes, expected at least %d", len(body), header)
	}
	native := nl.NativeEndian()
	for b := body[header:]; len(b) >= unix.SizeofRtAttr; {
		length := int(native.Uint16(b))
		if length < unix.SizeofRtAttr || length > len(b) {
			return fmt.Errorf("netlink attribute of %d bytes, expected %d to %d", length, unix.SizeofRtAttr, len(b))
		}
		fn(int(native.Uint16(b[2:])&nl.NLA_TYPE_MASK), b[unix.SizeofRtAttr:length])
		b = b[min((length+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(b)):]
	}
	return nil
}

// number reads an unsigned integer of the machine's byte order, 0 if short.
func number(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return int(nl.NativeEndian().Uint32(b))
}

func macOf(b []byte) (m attach.MAC) {
	if len(b) == len(m) {
		copy(m[:], b)
	}
	return m
}

func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

func parseLink(body []byte) (link, error) {
	var l link
	err := parseAttrs(body, unix.SizeofIfInfomsg, func(kind int, v []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(v)
		case unix.IFLA_IFALIAS:
			l.alias = unix.ByteSliceToString(v)
		case unix.IFLA_ADDRESS:
			l.mac = macOf(v)
		case unix.IFLA_MTU:
			l.mtu = number(v)
		case unix.IFLA_LINK:
			l.peerIndex = number(v)
		case unix.IFLA_GROUP:
			l.group = uint32(number(v))
		case unix.IFLA_LINKINFO:
			l.info(v)
		case unix.IFLA_AF_SPEC:
			l.proxyARP = inetConfOf(v, ipv4ConfProxyARP)
			l.routeLocalnet = inetConfOf(v, ipv4ConfRouteLocalnet)
		}
	})
	if err == nil {
		h := nl.DeserializeIfInfomsg(body)
		l.index, l.up = int(h.Index), h.Flags&unix.IFF_UP != 0
	}
	return l, err
}

// info reads IFLA_LINKINFO, in which the kind comes before its data.
func (l *link) info(nested []byte) {
	_ = parseAttrs(nested, 0, func(k int, v []byte) {
		switch {
		case k == unix.IFLA_INFO_KIND:
			l.kind = unix.ByteSliceToString(v)
		case k == unix.IFLA_INFO_DATA && l.kind == kindVXLAN:
			l.vxlan.parse(v)
		}
	})
}

func (x *vxlan) parse(data []byte) {
	_ = parseAttrs(data, 0, func(k int, v []byte) {
		switch k {
		case nl.IFLA_VXLAN_ID:
			x.vni = uint32(number(v))
		case nl.IFLA_VXLAN_PORT:
			if len(v) == 2 {
				x.port = binary.BigEndian.Uint16(v)
			}
		case nl.IFLA_VXLAN_LOCAL, nl.IFLA_VXLAN_LOCAL6:
			x.local = addrOf(v)
		case nl.IFLA_VXLAN_LEARNING:
			x.learning = len(v) == 1 && v[0] != 0
		case nl.IFLA_VXLAN_GROUP, nl.IFLA_VXLAN_GROUP6:
			x.remote = true
		case nl.IFLA_VXLAN_FLOWBASED:
			x.external = len(v) == 1 && v[0] != 0
		}
	})
}

// inetConfOf digs in IFLA_AF_SPEC / AF_INET / IFLA_INET_CONF: an array of the
// settings, each 4 bytes, in the order of their numbers from 1.
func inetConfOf(spec []byte, setting int) (on bool) {
	_ = parseAttrs(spec, 0, func(family int, v []byte) {
		if family != unix.AF_INET {
			return
		}
		_ = parseAttrs(v, 0, func(kind int, conf []byte) {
			if at := 4 * (setting - 1); kind == inetConf && len(conf) >= at+4 {
				on = number(conf[at:]) != 0
			}
		})
	})
	return on
}

// address is what RTM_NEWADDR tells.
type address struct {
	prefix netip.Prefix
	index  int
	scope  int // RT_SCOPE_*
	flags  int // IFA_F_*
}

func parseAddress(body []byte) (address, error) {
	var local, remote netip.Addr
	flags := -1
	err := parseAttrs(body, unix.SizeofIfAddrmsg, func(kind int, v []byte) {
		switch kind {
		case unix.IFA_FLAGS:
			flags = number(v)
		case unix.IFA_LOCAL:
			local = addrOf(v)
		case unix.IFA_ADDRESS:
			remote = addrOf(v)
		}
	})
	if err != nil {
		return address{}, err
	}
	if !local.IsValid() {
		local = remote // IPv6 tells only this one unless the address is point-to-point
	}
	h := nl.DeserializeIfAddrmsg(body)
	if flags < 0 {
		flags = int(h.Flags)
	}
	return address{
		prefix: netip.PrefixFrom(local, int(h.Prefixlen)), index: int(h.Index), scope: int(h.Scope), flags: flags,
	}, nil
}

// route is what RTM_NEWROUTE tells.
type route struct {
	dst      netip.Prefix
	gateway  netip.Addr
	oif      int
	table    int
	priority int
	mtu      int
	advMSS   int
	scope    int
	kind     int // RTN_*
	protocol int
	onlink   bool
	source   netip.Addr // that the kernel prefers
	multi    bool       // several next hops, which are not told here
}

func parseRoute(body []byte) (route, error) {
	var r route
	var dst netip.Addr
	err := parseAttrs(body, unix.SizeofRtMsg, func(kind int, v []byte) {
		switch kind {
		case unix.RTA_DST:
			dst = addrOf(v)
		case unix.RTA_GATEWAY:
			r.gateway = addrOf(v)
		case unix.RTA_VIA: // struct rtvia: family, address (Linux 5.2)
			if len(v) > 2 {
				r.gateway = addrOf(v[2:])
			}
		case unix.RTA_PREFSRC:
			r.source = addrOf(v)
		case unix.RTA_MULTIPATH:
			r.multi = true
		case unix.RTA_OIF:
			r.oif = number(v)
		case unix.RTA_TABLE:
			r.table = number(v)
		case unix.RTA_PRIORITY:
			r.priority = number(v)
		case unix.RTA_METRICS:
			r.metrics(v)
		}
	})
	if err != nil {
		return route{}, err
	}
	h := nl.DeserializeRtMsg(body)
	r.scope, r.kind, r.protocol = int(h.Scope), int(h.Type), int(h.Protocol)
	r.onlink = h.Flags&unix.RTNH_F_ONLINK != 0
	if !dst.IsValid() { // a default route names no destination
		dst = netip.IPv6Unspecified()
		if h.Family == unix.AF_INET {
			dst = netip.IPv4Unspecified()
		}
	}
	r.dst = netip.PrefixFrom(dst, int(h.Dst_len))
	return r, nil
}

func (r *route) metrics(nested []byte) {
	_ = parseAttrs(nested, 0, func(kind int, v []byte) {
		switch kind {
		case unix.RTAX_MTU:
			r.mtu = number(v)
		case unix.RTAX_ADVMSS:
			r.advMSS = number(v)
		}
	})
}

// neighbour is what RTM_NEWNEIGH tells.
type neighbour struct {
	attach.Neighbour
	index     int
	family    int  // AF_BRIDGE: a forwarding entry, and Addr is where it leads
	plain     bool // of a forwarding entry: no port, VNI or interface of its own
	permanent bool
	valid     bool // the hardware address can be used
}

func parseNeighbour(body []byte) (neighbour, error) {
	n := neighbour{plain: true}
	err := parseAttrs(body, unix.SizeofNdMsg, func(kind int, v []byte) {
		switch kind {
		case unix.NDA_DST:
			n.Addr = addrOf(v)
		case unix.NDA_LLADDR:
			n.MAC = macOf(v)
		case unix.NDA_PORT, unix.NDA_VNI, unix.NDA_IFINDEX:
			n.plain = false
		}
	})
	if err == nil {
		n.family = int(body[0])
		n.index = number(body[4:])
		state := nl.NativeEndian().Uint16(body[8:])
		n.permanent = state&neighbourPermanent != 0
		n.valid = state&neighbourValid != 0
	}
	return n, err
}

// isErrno reports whether the kernel's answer was one of these.
func isErrno(err error, errnos ...syscall.Errno) bool {
	for _, e := range errnos {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
