// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
)

type fabricAddresses struct{ h *Handle }

// FabricAddresses returns the driver of the addresses on our VXLAN devices.
// They are of full length and global scope; others there are not looked at,
// but for one that is in the way of a wanted one.
func (h *Handle) FabricAddresses() fabricAddresses { return fabricAddresses{h} }

// Observe implements reconcile.Driver.
func (d fabricAddresses) Observe() (map[topology.AddressKey]topology.Address, error) {
	observed := map[topology.AddressKey]topology.Address{}
	err := d.h.with(func(c *conn) error {
		devices, err := c.fabricDevices()
		if err != nil || len(devices) == 0 {
			return err
		}
		list, err := c.dumpAddresses()
		for _, a := range list {
			if k, ok := a.fabricKey(fabricName(devices, a.index)); ok {
				observed[k] = topology.Address{}
			}
		}
		return err
	})
	return observed, err
}

// fabricKey returns the key of an address on one of our devices, which is ""
// if it is on none.
func (a address) fabricKey(device string) (topology.AddressKey, bool) {
	ok := device != "" && a.prefix.IsSingleIP() && a.scope == unix.RT_SCOPE_UNIVERSE
	return topology.AddressKey{Dev: device, Addr: a.prefix.Addr()}, ok
}

// Apply implements reconcile.Driver.
func (d fabricAddresses) Apply(ops []delta.Op[topology.AddressKey, topology.Address]) []error {
	errs := operate(d.h, ops, func(k topology.AddressKey) string { return k.Dev },
		func(op delta.Op[topology.AddressKey, topology.Address], index int) *message {
			p := netip.PrefixFrom(op.Key.Addr, op.Key.Addr.BitLen())
			if op.Verb == delta.Delete {
				return fabricAddress(unix.RTM_DELADDR, 0, "delete address", p, op.Key.Dev, index)
			}
			return fabricAddress(unix.RTM_NEWADDR, create, "add address", p, op.Key.Dev, index)
		}, unix.EADDRNOTAVAIL, unix.ENODEV)
	for i, op := range ops {
		if op.Verb != delta.Delete && isErrno(errs[i], unix.EEXIST) {
			errs[i] = d.h.with(func(c *conn) error { return c.replaceFabricAddress(op.Key) })
		}
	}
	return errs
}

// replaceFabricAddress makes an address be there with its full length. IPv6
// has an address once, whatever its length.
func (c *conn) replaceFabricAddress(k topology.AddressKey) error {
	devices, err := c.fabricDevices()
	if err != nil {
		return err
	}
	list, err := c.dumpAddresses()
	if err != nil {
		return err
	}
	index := fabricIndex(devices, k.Dev)
	for _, a := range list {
		if a.index != index || a.prefix.Addr() != k.Addr {
			continue
		}
		if a.prefix.IsSingleIP() {
			return nil
		}
		if err := c.exec(fabricAddress(unix.RTM_DELADDR, 0, "delete address", a.prefix, k.Dev, index)); err != nil {
			return err
		}
	}
	p := netip.PrefixFrom(k.Addr, k.Addr.BitLen())
	return c.exec(fabricAddress(unix.RTM_NEWADDR, create, "add address", p, k.Dev, index))
}

// fabricAddress adds or deletes an address that is valid at once and brings no
// route but the local one.
func fabricAddress(kind, flags int, op string, p netip.Prefix, device string, index int) *message {
	addrFlags := unix.IFA_F_NOPREFIXROUTE
	if p.Addr().Is6() {
		addrFlags |= unix.IFA_F_NODAD
	}
	h := nl.NewIfAddrmsg(familyOf(p.Addr()))
	h.Prefixlen = uint8(p.Bits())
	h.Index = uint32(index)
	return &message{
		op: op, object: fmt.Sprintf("%s dev %s", p, device),
		req: request(kind, flags, h,
			addr(unix.IFA_LOCAL, p.Addr()), addr(unix.IFA_ADDRESS, p.Addr()), u32(unix.IFA_FLAGS, addrFlags)),
	}
}
