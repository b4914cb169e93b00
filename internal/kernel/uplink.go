// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// DefaultMTU is the MTU in bytes where no uplink is found: Ethernet's.
const DefaultMTU = 1500

// Addresses that nobody has (RFC 5737, RFC 3849): the route to them is the
// default route, if there is one.
var documentation = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// UplinkMTU returns the MTU in bytes of the interface of the default route,
// IPv4's or else IPv6's, or DefaultMTU where there is neither.
func (h *Handle) UplinkMTU() (int, error) {
	mtu := DefaultMTU
	err := h.with(func(c *conn) (err error) {
		mtu, err = c.uplinkMTU()
		return err
	})
	return mtu, err
}

func (c *conn) uplinkMTU() (int, error) {
	for _, a := range documentation {
		r, err := c.defaultRoute(a)
		if err != nil {
			return 0, err
		}
		if r.oif == 0 {
			continue
		}
		var l link
		if err := c.exec(getLink(r.oif, "", &l)); err != nil {
			return 0, err
		}
		return l.mtu, nil
	}
	return DefaultMTU, nil
}

// defaultRoute looks up the way to an address that nobody has. oif is 0 if there
// is none.
func (c *conn) defaultRoute(a netip.Addr) (r route, err error) {
	err = c.exec(lookUpRoute(a, &r))
	if isErrno(err, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EAFNOSUPPORT, unix.EOPNOTSUPP) {
		return route{}, nil // no route, or one that says "unreachable", "prohibit", "blackhole"; or no such family
	}
	if r.oif == loopbackIndex {
		return route{}, err // IPv6 answers "unreachable" in this way
	}
	return r, err
}
