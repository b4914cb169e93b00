// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
)

// maxAlias is in bytes (IFALIASZ is 256 with the terminating zero).
const maxAlias = 255

type vxlanLinks struct {
	h     *Handle
	alias string
}

// VXLANLinks returns the driver of the VXLAN devices. Ours have kind, name and
// the alias "weft <instance> overlay", or no alias: one half made.
//
// A device is made anew, and loses everything that is on it, where VNI, port or
// family change; the rest changes in place. A change of the hardware address
// makes the kernel drop the device's neighbours.
func (h *Handle) VXLANLinks(instance string) vxlanLinks {
	alias := aliasMark + instance + " overlay"
	return vxlanLinks{h: h, alias: alias[:min(len(alias), maxAlias)]}
}

// ForeignDeviceError says that the name of a device of ours is taken. Nothing
// was changed.
type ForeignDeviceError struct {
	Name, Kind, Alias string
}

func (e *ForeignDeviceError) Error() string {
	return fmt.Sprintf("add link %s: the host has an interface of this name that this weft did not make "+
		"(kind: %q, alias: %q; expected kind %q); delete or rename it", e.Name, e.Kind, e.Alias, kindVXLAN)
}

func (d vxlanLinks) ours(l link) bool {
	return l.fabricDevice() && (l.alias == "" || l.alias == d.alias)
}

// Observe implements reconcile.Driver.
func (d vxlanLinks) Observe() (map[topology.LinkKey]topology.Link, error) {
	observed := map[topology.LinkKey]topology.Link{}
	err := d.h.with(func(c *conn) error {
		devices, err := c.fabricDevices()
		if err != nil {
			return err
		}
		for _, l := range devices {
			if !d.ours(l) {
				continue
			}
			checksum, err := d.h.txChecksum(l.name)
			if isErrno(err, unix.ENODEV) {
				continue // gone meanwhile
			}
			if err != nil {
				return err
			}
			observed[topology.LinkKey(l.name)] = l.object(checksum)
		}
		return nil
	})
	return observed, err
}

// object is a device as the topology sees it. One that is down, without alias,
// or sends frames where no FDB entry leads, is not as anybody wants it: its MTU
// is 0.
func (l link) object(checksum bool) topology.Link {
	v := topology.Link{
		VNI: l.vxlan.vni, Port: l.vxlan.port, Local: l.vxlan.local, MAC: l.mac, MTU: l.mtu, Checksum: checksum,
	}
	if !l.up || l.alias == "" || l.vxlan.learning || l.vxlan.remote || l.vxlan.external {
		v.MTU = 0
	}
	return v
}

// Apply implements reconcile.Driver. What there is to change follows from the
// kernel's present state.
func (d vxlanLinks) Apply(ops []delta.Op[topology.LinkKey, topology.Link]) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		errs[i] = d.h.with(func(c *conn) error {
			if op.Verb == delta.Delete {
				return d.remove(c, string(op.Key))
			}
			return d.ensure(c, string(op.Key), op.Want)
		})
	}
	return errs
}

func (d vxlanLinks) remove(c *conn, name string) error {
	l, found, err := c.findLink(name)
	if err != nil || !found || !d.ours(l) {
		return err
	}
	if err := c.exec(delLink(name, l.index)); !isErrno(err, unix.ENODEV) {
		return err
	}
	return nil
}

func (d vxlanLinks) ensure(c *conn, name string, want topology.Link) error {
	l, found, err := c.findLink(name)
	switch {
	case err != nil:
		return err
	case found && !d.ours(l):
		return &ForeignDeviceError{Name: name, Kind: l.kind, Alias: l.alias}
	case found && !l.vxlan.convertible(want):
		if err := c.exec(delLink(name, l.index)); err != nil && !isErrno(err, unix.ENODEV) {
			return err
		}
		found = false
	}
	if !found {
		if err := c.exec(addVXLAN(name, want)); err != nil {
			return err
		}
		if err := c.exec(getLink(0, name, &l)); err != nil {
			return err
		}
	}
	return d.configure(c, l, want)
}

// convertible reports whether the kernel can change the device to what is
// wanted.
func (x vxlan) convertible(want topology.Link) bool {
	return x.vni == want.VNI && x.port == want.Port && x.local.Is4() == want.Local.Is4() && !x.remote && !x.external
}

// configure changes what the kernel can change, and brings the device up once
// everything else is right.
func (d vxlanLinks) configure(c *conn, l link, want topology.Link) error {
	quiet := setNoLinkLocal(l.name, l.index)
	msgs := []*message{quiet}
	if l.vxlan.local != want.Local || l.vxlan.learning {
		msgs = append(msgs, changeVXLAN(l, want))
	}
	if l.mac != want.MAC {
		msgs = append(msgs, setLink("set hardware address of", l.name, l.index, nl.NewRtAttr(unix.IFLA_ADDRESS, want.MAC[:])))
	}
	if l.mtu != want.MTU {
		msgs = append(msgs, setMTU(l.name, l.index, want.MTU))
	}
	if l.alias != d.alias {
		msgs = append(msgs, setAlias(l.name, l.index, d.alias))
	}
	err := c.exec(msgs...)
	if isErrno(quiet.err, unix.EAFNOSUPPORT) { // without IPv6 there is nothing to disable
		err = ignoring(err, msgs, unix.EAFNOSUPPORT)
	}
	if err != nil {
		return err
	}
	if err := d.h.setTxChecksum(l.name, want.Checksum); err != nil {
		return err
	}
	if l.up {
		return nil
	}
	return c.exec(setUp(l.name, l.index))
}

func setMTU(name string, index, mtu int) *message {
	return setLink(fmt.Sprintf("set MTU %d of", mtu), name, index, u32(unix.IFLA_MTU, mtu))
}

// addVXLAN creates a device that is down, with everything that can be given at
// once.
func addVXLAN(name string, want topology.Link) *message {
	port := binary.BigEndian.AppendUint16(nil, want.Port)
	info := vxlanInfo(u32(nl.IFLA_VXLAN_ID, int(want.VNI)), vxlanLocal(want), vxlanNoLearning(), nl.NewRtAttr(nl.IFLA_VXLAN_PORT, port))
	return &message{
		op: "add link", object: fmt.Sprintf("%s type vxlan id %d dstport %d local %s", name, want.VNI, want.Port, want.Local),
		req: request(unix.RTM_NEWLINK, create, linkHeader(0), text(unix.IFLA_IFNAME, name),
			nl.NewRtAttr(unix.IFLA_ADDRESS, want.MAC[:]), u32(unix.IFLA_MTU, want.MTU), info),
	}
}

// changeVXLAN changes the outer source address, in use from the next packet on.
// FDB entries stay.
func changeVXLAN(l link, want topology.Link) *message {
	return &message{
		op: "change link", object: fmt.Sprintf("%s local %s", l.name, want.Local),
		req: request(unix.RTM_NEWLINK, 0, linkHeader(l.index), vxlanInfo(vxlanLocal(want), vxlanNoLearning())),
	}
}

func vxlanInfo(data ...*nl.RtAttr) *nl.RtAttr {
	return attrs(unix.IFLA_LINKINFO, nl.NewRtAttr(unix.IFLA_INFO_KIND, []byte(kindVXLAN)), attrs(unix.IFLA_INFO_DATA, data...))
}

func vxlanLocal(want topology.Link) *nl.RtAttr {
	if want.Local.Is4() {
		return addr(nl.IFLA_VXLAN_LOCAL, want.Local)
	}
	return addr(nl.IFLA_VXLAN_LOCAL6, want.Local)
}

func vxlanNoLearning() *nl.RtAttr { return nl.NewRtAttr(nl.IFLA_VXLAN_LEARNING, nl.Uint8Attr(0)) }
