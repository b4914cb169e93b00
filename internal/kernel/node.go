// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/crash"
)

// Node is what one network needs once per node, whatever the number of its
// pods. It is derived from configuration alone.
type Node struct {
	// Gateways that the host answers for: a local route each, so that a pod can
	// ping its gateway although no interface has the address. IPv6 link-local
	// gateways are skipped: the kernel accepts such an address only on the
	// interface that has it.
	Gateways []netip.Addr

	// Table is the nftables table (family inet) for masquerade, ours alone,
	// for example "weft.mynet"; "" means no masquerade.
	Table string
	// What comes from Sources and goes to none of Pools leaves with the node's
	// address, unless it goes to a multicast, link-local or loopback address.
	Sources, Pools []netip.Prefix

	IPv4, IPv6 bool // forward packets of this family
}

// forwarding returns the kernel parameters that the node wants at "1".
func (n Node) forwarding() []string {
	var keys []string
	if n.IPv4 {
		keys = append(keys, string(ForwardingIPv4))
	}
	if n.IPv6 {
		keys = append(keys, string(ForwardingIPv6))
	}
	return keys
}

func (n Node) localGateways() []netip.Addr {
	var list []netip.Addr
	for _, gw := range n.Gateways {
		if gw.Is4() || !gw.IsLinkLocalUnicast() {
			list = append(list, gw)
		}
	}
	return list
}

// EnsureNode makes the node as described. Where it already is, which is so for
// all but the first pod, that takes two netlink requests and two small files.
// Any number of processes may do it at once.
func (h *Handle) EnsureNode(n Node) error {
	if err := h.ensureForwarding(n); err != nil {
		return err
	}
	if err := h.ensureGateways(n); err != nil {
		return err
	}
	return h.ensureMasquerade(n)
}

func (h *Handle) ensureForwarding(n Node) error {
	return h.inside(func() error {
		for _, key := range n.forwarding() {
			// Writing has side effects on every interface even if nothing changes.
			if v, err := readSysctl(key); err == nil && v == "1" {
				continue
			}
			crash.Point("kernel-forwarding:before")
			err := writeSysctl(key, "1")
			crash.Point("kernel-forwarding:after")
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *Handle) ensureGateways(n Node) error {
	gateways := n.localGateways()
	if len(gateways) == 0 {
		return nil
	}
	return h.with(func(c *conn) error {
		msgs := make([]*message, len(gateways))
		for i, gw := range gateways {
			msgs[i] = localRoute(unix.RTM_NEWROUTE, create, "add route", gw)
		}
		crash.Point("kernel-gateway-add:before")
		err := c.exec(msgs...)
		crash.Point("kernel-gateway-add:after")
		return ignoring(err, msgs, unix.EEXIST) // by us earlier, or the host has the address itself
	})
}

// ignoring drops the outcomes that are no failures.
func ignoring(err error, msgs []*message, harmless unix.Errno) error {
	if err == nil || !isErrno(err, harmless) {
		return err
	}
	for _, m := range msgs {
		if m.err != nil && !isErrno(m.err, harmless) {
			return m.err
		}
	}
	return nil
}

// RemoveNode removes the table and the gateways' local routes. It is
// idempotent. Forwarding stays: others may need it. Another network of this
// node with the same gateway gets it back from its next EnsureNode.
func (h *Handle) RemoveNode(n Node) error {
	if gateways := n.localGateways(); len(gateways) > 0 {
		err := h.with(func(c *conn) error {
			msgs := make([]*message, len(gateways))
			for i, gw := range gateways {
				msgs[i] = localRoute(unix.RTM_DELROUTE, 0, "delete route", gw)
			}
			crash.Point("kernel-gateway-delete:before")
			err := c.exec(msgs...)
			crash.Point("kernel-gateway-delete:after")
			return ignoring(err, msgs, unix.ESRCH)
		})
		if err != nil {
			return err
		}
	}
	if n.Table == "" {
		return nil
	}
	return h.removeMasquerade(n.Table)
}

// CompareNode returns in which ways the node is not as described.
func (h *Handle) CompareNode(n Node) ([]Difference, error) {
	d := &differences{}
	err := h.inside(func() error {
		for _, key := range n.forwarding() {
			v, err := readSysctl(key)
			if err != nil {
				return err
			}
			d.expect("sysctl "+key, "1", v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := h.with(func(c *conn) error { return d.gateways(c, n) }); err != nil {
		return nil, err
	}
	if err := d.masquerade(h, n); err != nil {
		return nil, err
	}
	return d.list, nil
}

// gateways asks where packets to each would go: to the host itself.
func (d *differences) gateways(c *conn, n Node) error {
	for _, gw := range n.localGateways() {
		var r route
		err := c.exec(lookUpRoute(gw, &r))
		switch {
		case isErrno(err, unix.ENETUNREACH, unix.EHOSTUNREACH):
			d.add("gateway "+gw.String(), "a local route", absent)
		case err != nil:
			return err
		case r.kind != unix.RTN_LOCAL:
			d.add("gateway "+gw.String(), "a local route", "a route of another kind")
		}
	}
	return nil
}
