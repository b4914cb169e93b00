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
	err := h.with(func(c *conn) error {
		for _, a := range documentation {
			var r route
			if err := c.exec(lookUpRoute(a, &r)); err != nil {
				if isErrno(err, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EAFNOSUPPORT, unix.EOPNOTSUPP) {
					continue // no route, or one that says "unreachable", "prohibit", "blackhole"; or no such family
				}
				return err
			}
			if r.oif == 0 || r.oif == loopbackIndex {
				continue // IPv6 answers "unreachable" in this way
			}
			var l link
			if err := c.exec(getLink(r.oif, "", &l)); err != nil {
				return err
			}
			mtu = l.mtu
			return nil
		}
		return nil
	})
	return mtu, err
}
