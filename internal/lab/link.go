// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// What NodeStatus says of a link.
const (
	LinkUp  = "up"
	LinkCut = "cut"
)

// CutLink pulls a node's cable: the far end of its uplink goes down, so the
// node loses its carrier. A link that is cut already stays so.
func (h Host) CutLink(name, node string) error {
	return h.setLink(name, node, (*netlink.Handle).LinkSetDown, LinkCut)
}

// RestoreLink undoes CutLink. A link that is whole stays so.
func (h Host) RestoreLink(name, node string) error {
	return h.setLink(name, node, (*netlink.Handle).LinkSetUp, LinkUp)
}

func (h Host) setLink(name, node string, set func(*netlink.Handle, netlink.Link) error, state string) error {
	return h.onNode(name, node, func(l *lab, n Node) error {
		err := l.port(n, func(outside *netlink.Handle, port netlink.Link) error { return set(outside, port) })
		if err != nil {
			return fmt.Errorf("set the link of %s to %s: %w", node, state, err)
		}
		l.say("%s: link to %s is %s", node, n.Segment, state)
		return nil
	})
}

// linkState is what the kernel says, not what a command did.
func (l *lab) linkState(n Node) string {
	state := LinkUp
	err := l.port(n, func(_ *netlink.Handle, port netlink.Link) error {
		if port.Attrs().Flags&net.FlagUp == 0 {
			state = LinkCut
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return state
}
