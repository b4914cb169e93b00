// SPDX-License-Identifier: Apache-2.0

package kernel

import "fmt"

// SetPodMTU gives both ends of an attachment the MTU, in bytes. Packets under
// way that are larger than the new one may be lost.
func (h *Handle) SetPodMTU(ns *Netns, ifname, hostIfname string, mtu int) error {
	err := h.with(func(c *conn) error { return c.ensureMTU(hostIfname, mtu) })
	if err != nil {
		return err
	}
	if err := ns.with(func(c *conn) error { return c.ensureMTU(ifname, mtu) }); err != nil {
		return fmt.Errorf("sandbox %s: %w", ns.Path, err)
	}
	return nil
}

func (c *conn) ensureMTU(name string, mtu int) error {
	var l link
	if err := c.exec(getLink(0, name, &l)); err != nil || l.mtu == mtu {
		return err
	}
	return c.exec(setMTU(name, l.index, mtu))
}
