// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

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

// dumpNeighbours lists the neighbours of one link, of both families. The
// kernel filters by link since 4.20.
func (c *conn) dumpNeighbours(index int) ([]neighbour, error) {
	var list []neighbour
	err := c.dumpStable(func() *message {
		list = nil
		return &message{
			op: "list neighbours", req: request(unix.RTM_GETNEIGH, 0, neighbourHeader{}, u32(unix.NDA_IFINDEX, index)),
			reply: func(body []byte) error {
				n, err := parseNeighbour(body)
				if err == nil && n.index == index {
					list = append(list, n)
				}
				return err
			},
		}
	})
	return list, err
}
