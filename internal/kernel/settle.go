// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// This file waits for what the kernel does by and by, after it has answered.

// settle makes sure that the host end can transmit. Of two ends of a pair, the
// one that came up first learns of its carrier by a deferred event, and drops
// what it should send until then: up to a second, if by chance both ends have
// the same index. Asking for one link makes the kernel handle its pending
// event (Linux 6.8); older kernels only answer.
func (c *conn) settle(p attach.Plan, index int) error {
	var at link
	return c.exec(getLink(index, p.HostIfname, &at))
}

// Waiting for IPv6 addresses: how often to look, and when to give up. On an
// idle machine the first look or the second finds them.
const (
	addressPoll    = 50 * time.Microsecond
	addressTimeout = 5 * time.Second
)

// awaitAddresses returns when the sandbox takes packets to its IPv6 addresses.
// Even without duplicate address detection the kernel leaves the last step,
// the local route, to a work queue (addrconf_dad_work); a packet that comes
// earlier is dropped. IPv4 has no such delay.
func (c *conn) awaitAddresses(p attach.Plan, index int) error {
	var pending []netip.Addr
	for _, a := range p.Addresses {
		if a.Addr().Is6() {
			pending = append(pending, a.Addr())
		}
	}
	for deadline := time.Now().Add(addressTimeout); len(pending) > 0; time.Sleep(addressPoll) { //nolint:forbidigo // the kernel sends no event that a socket of ours would get
		var err error
		if pending, err = c.notLocal(pending, index); err != nil {
			return err
		}
		if len(pending) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("address %s dev %s: the kernel did not put it to use within %s", pending[0], p.Ifname, addressTimeout)
		}
	}
	return nil
}

// notLocal returns those of the addresses that have no local route yet.
func (c *conn) notLocal(addrs []netip.Addr, index int) ([]netip.Addr, error) {
	routes := make([]route, len(addrs))
	msgs := make([]*message, len(addrs))
	for i, a := range addrs {
		msgs[i] = lookUpRoute(a, &routes[i])
		if a.IsLinkLocalUnicast() {
			msgs[i].req.AddData(u32(unix.RTA_OIF, index)) // the address alone is ambiguous
		}
	}
	if err := c.exec(msgs...); err != nil && !isErrno(err, unix.ENETUNREACH, unix.EHOSTUNREACH) {
		return nil, err
	}
	var rest []netip.Addr
	for i, r := range routes {
		if r.kind != unix.RTN_LOCAL {
			rest = append(rest, addrs[i])
		}
	}
	return rest, nil
}
