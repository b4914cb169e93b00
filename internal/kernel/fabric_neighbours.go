// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
)

type fabricNeighbours struct{ h *Handle }

// FabricNeighbours returns the driver of the permanent neighbour entries on our
// VXLAN devices. Entries that the kernel makes, such as of an address that did
// not answer, are not looked at.
//
// The kernel drops all of them when a device goes down or changes its hardware
// address.
func (h *Handle) FabricNeighbours() fabricNeighbours { return fabricNeighbours{h} }

// Observe implements reconcile.Driver.
func (d fabricNeighbours) Observe() (map[topology.NeighbourKey]topology.Neighbour, error) {
	observed := map[topology.NeighbourKey]topology.Neighbour{}
	err := d.h.onFabric(unix.AF_UNSPEC, func(n neighbour, device string) {
		if k, v, ok := n.fabricNeighbour(device); ok {
			observed[k] = v
		}
	})
	return observed, err
}

// onFabric tells of the neighbours on our devices.
func (h *Handle) onFabric(family int, tell func(n neighbour, device string)) error {
	return h.with(func(c *conn) error {
		devices, err := c.fabricDevices()
		if err != nil {
			return err
		}
		for _, l := range devices {
			list, err := c.dumpNeighbours(family, l.index)
			if err != nil {
				return err
			}
			for _, n := range list {
				tell(n, l.name)
			}
		}
		return nil
	})
}

func (n neighbour) fabricNeighbour(device string) (topology.NeighbourKey, topology.Neighbour, bool) {
	return topology.NeighbourKey{Dev: device, Addr: n.Addr}, topology.Neighbour{MAC: n.MAC}, n.permanent && n.Addr.IsValid()
}

// Apply implements reconcile.Driver.
func (d fabricNeighbours) Apply(ops []delta.Op[topology.NeighbourKey, topology.Neighbour]) []error {
	return operate(d.h, ops, func(k topology.NeighbourKey) string { return k.Dev },
		func(op delta.Op[topology.NeighbourKey, topology.Neighbour], index int) *message {
			if op.Verb == delta.Delete {
				h := neighbourHeader{family: uint8(familyOf(op.Key.Addr)), index: uint32(index)}
				return &message{
					op: "delete neighbour", object: fmt.Sprintf("%s dev %s", op.Key.Addr, op.Key.Dev),
					req: request(unix.RTM_DELNEIGH, 0, h, addr(unix.NDA_DST, op.Key.Addr)),
				}
			}
			return addNeighbour(attach.Neighbour{Addr: op.Key.Addr, MAC: op.Want.MAC}, op.Key.Dev, index)
		}, unix.ENOENT, unix.ENODEV)
}

type fdb struct{ h *Handle }

// FDB returns the driver of the forwarding entries on our VXLAN devices. A
// hardware address has one destination: the kernel keeps several only of a
// multicast address.
func (h *Handle) FDB() fdb { return fdb{h} }

// Observe implements reconcile.Driver.
func (d fdb) Observe() (map[topology.FDBKey]topology.FDB, error) {
	observed := map[topology.FDBKey]topology.FDB{}
	err := d.h.onFabric(unix.AF_BRIDGE, func(n neighbour, device string) {
		k, v := n.forwarding(device)
		observed[k] = v
	})
	return observed, err
}

// forwarding says where a forwarding entry leads. An entry that may vanish, or
// has a port, VNI or interface of its own, is not as anybody wants it: its
// destination is the zero address.
func (n neighbour) forwarding(device string) (topology.FDBKey, topology.FDB) {
	var v topology.FDB
	if n.permanent && n.plain {
		v.Dst = n.Addr
	}
	return topology.FDBKey{Dev: device, MAC: n.MAC}, v
}

// Apply implements reconcile.Driver.
func (d fdb) Apply(ops []delta.Op[topology.FDBKey, topology.FDB]) []error {
	return operate(d.h, ops, func(k topology.FDBKey) string { return k.Dev },
		func(op delta.Op[topology.FDBKey, topology.FDB], index int) *message {
			h := neighbourHeader{family: unix.AF_BRIDGE, index: uint32(index), flags: unix.NTF_SELF, state: neighbourPermanent | neighbourNoARP}
			mac := nl.NewRtAttr(unix.NDA_LLADDR, op.Key.MAC[:])
			if op.Verb == delta.Delete {
				return &message{
					op: "delete fdb entry", object: fmt.Sprintf("%s dev %s", op.Key.MAC, op.Key.Dev),
					req: request(unix.RTM_DELNEIGH, 0, h, mac),
				}
			}
			return &message{
				op: "add fdb entry", object: fmt.Sprintf("%s dst %s dev %s", op.Key.MAC, op.Want.Dst, op.Key.Dev),
				req: request(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, h, mac, addr(unix.NDA_DST, op.Want.Dst)),
			}
		}, unix.ENOENT, unix.ENODEV)
}
