// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// Owned is a host end of ours, with the addresses that the host leads to it.
type Owned struct {
	HostIfname string
	Alias      string       // "" for a link left behind between creation and alias
	Addresses  []netip.Addr // from the host routes of RouteProtocol, ascending
	Index      int
	MTU        int // bytes
}

// Owned lists the host ends in the Handle's namespace that bear our mark, by
// name. The lists are consistent: a dump during which the kernel's tables
// changed is repeated.
func (h *Handle) Owned() ([]Owned, error) {
	var owned []Owned
	err := h.with(func(c *conn) error {
		links, err := c.ownedLinks()
		if err != nil {
			return err
		}
		byIndex := make(map[int]*Owned, len(links))
		owned = make([]Owned, len(links))
		for i, l := range links {
			owned[i] = Owned{HostIfname: l.name, Alias: l.alias, Index: l.index, MTU: l.mtu}
			byIndex[l.index] = &owned[i]
		}
		if len(links) == 0 {
			return nil
		}
		routes, err := c.dumpRoutes(unix.AF_UNSPEC, RouteProtocol)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if o := byIndex[r.oif]; o != nil && r.dst.IsSingleIP() && r.kind == unix.RTN_UNICAST {
				o.Addresses = append(o.Addresses, r.dst.Addr())
			}
		}
		return nil
	})
	for i := range owned {
		// A dump of IPv6 routes that change meanwhile may tell one twice.
		slices.SortFunc(owned[i].Addresses, netip.Addr.Compare)
		owned[i].Addresses = slices.Compact(owned[i].Addresses)
	}
	sort.Slice(owned, func(i, j int) bool { return owned[i].HostIfname < owned[j].HostIfname })
	return owned, err
}

// ownedLinks lets the kernel filter by kind (Linux 4.6) and checks the rest.
func (c *conn) ownedLinks() ([]link, error) {
	var links []link
	err := c.dumpStable(func() *message {
		links = nil
		info := attrs(unix.IFLA_LINKINFO, nl.NewRtAttr(unix.IFLA_INFO_KIND, []byte(kindVeth)))
		return &message{
			op: "list links", object: "of kind veth",
			req: request(unix.RTM_GETLINK, 0, linkHeader(0), u32(unix.IFLA_EXT_MASK, filterSkipStats), info),
			reply: func(body []byte) error {
				l, err := parseLink(body)
				if err == nil && strings.HasPrefix(l.name, attach.HostIfnamePrefix) && l.ours() {
					links = append(links, l)
				}
				return err
			},
		}
	})
	return links, err
}

// dumpRoutes lists routes of a family (AF_UNSPEC: both), of one protocol or,
// with 0, of all. Kernels that cannot filter (before 4.20) send everything.
func (c *conn) dumpRoutes(family, protocol int) ([]route, error) {
	if family == unix.AF_UNSPEC {
		four, err := c.dumpRoutes(unix.AF_INET, protocol)
		if err != nil {
			return nil, err
		}
		six, err := c.dumpRoutes(unix.AF_INET6, protocol)
		return append(four, six...), err
	}
	var routes []route
	err := c.dumpStable(func() *message {
		routes = nil
		h := nl.NewRtMsg()
		*h = nl.RtMsg{}
		h.Family, h.Protocol = uint8(family), uint8(protocol)
		return &message{op: "list routes", req: request(unix.RTM_GETROUTE, 0, h), reply: func(body []byte) error {
			if int(body[0]) != family {
				return nil // a kernel without IPv6 answers for the families that it has
			}
			r, err := parseRoute(body)
			if err == nil && (protocol == 0 || r.protocol == protocol) {
				routes = append(routes, r)
			}
			return err
		}}
	})
	if isErrno(err, unix.EAFNOSUPPORT, unix.EOPNOTSUPP) {
		err = nil
	}
	return routes, err
}
