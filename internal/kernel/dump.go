// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpLinks lists the links of a kind, "" meaning all. The kernel filters since
// 4.6.
func (c *conn) dumpLinks(kind string) ([]link, error) {
	var links []link
	err := c.dumpStable(func() *message {
		links = nil
		attributes := []*nl.RtAttr{u32(unix.IFLA_EXT_MASK, filterSkipStats)}
		if kind != "" {
			attributes = append(attributes, attrs(unix.IFLA_LINKINFO, nl.NewRtAttr(unix.IFLA_INFO_KIND, []byte(kind))))
		}
		return &message{
			op: "list links", object: kind, req: request(unix.RTM_GETLINK, 0, linkHeader(0), attributes...),
			reply: func(body []byte) error {
				l, err := parseLink(body)
				if err == nil && (kind == "" || l.kind == kind) {
					links = append(links, l)
				}
				return err
			},
		}
	})
	return links, err
}

// dumpAddresses lists the addresses of both families.
func (c *conn) dumpAddresses() ([]address, error) {
	var list []address
	err := c.dumpStable(func() *message {
		list = nil
		return &message{
			op: "list addresses", req: request(unix.RTM_GETADDR, 0, nl.NewIfAddrmsg(unix.AF_UNSPEC)),
			reply: func(body []byte) error {
				a, err := parseAddress(body)
				if err == nil && a.prefix.IsValid() {
					list = append(list, a)
				}
				return err
			},
		}
	})
	return list, err
}

// dumpNeighbours lists the neighbours of one link, of a family or, with
// AF_UNSPEC, of both; with AF_BRIDGE its forwarding entries. The kernel filters
// by link since 4.20.
func (c *conn) dumpNeighbours(family, index int) ([]neighbour, error) {
	var list []neighbour
	err := c.dumpStable(func() *message {
		list = nil
		return &message{
			op: "list neighbours", req: request(unix.RTM_GETNEIGH, 0, neighbourHeader{family: uint8(family)}, u32(unix.NDA_IFINDEX, index)),
			reply: func(body []byte) error {
				n, err := parseNeighbour(body)
				if err == nil && n.index == index && (n.family == unix.AF_BRIDGE) == (family == unix.AF_BRIDGE) {
					list = append(list, n)
				}
				return err
			},
		}
	})
	return list, err
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
