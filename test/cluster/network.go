// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// Addresses of the hosts: one segment per cluster, the same ones in each, for
// clusters cannot reach one another. The control plane is .1 and ::1.
var (
	segment4 = netip.MustParsePrefix("198.18.0.0/24")
	segment6 = netip.MustParsePrefix("fd00:18::/64")
)

// Addresses of services, and those of the API server and of DNS among them.
const (
	services4, serviceAPI4, serviceDNS4 = "10.96.0.0/16", "10.96.0.1", "10.96.0.10"
	services6, serviceAPI6, serviceDNS6 = "fd00:96::/112", "fd00:96::1", "fd00:96::a"
)

// nodeOffset is added to a node's index to make its address.
const nodeOffset = 10

// family says which IP families a cluster has. The first is the primary one.
type family []struct {
	v6                     bool
	segment                netip.Prefix
	services, api, dns, is string
}

func parseFamily(name string) (family, error) {
	both := family{
		{false, segment4, services4, serviceAPI4, serviceDNS4, "IPv4"},
		{true, segment6, services6, serviceAPI6, serviceDNS6, "IPv6"},
	}
	switch name {
	case "", "ipv4":
		return both[:1], nil
	case "ipv6":
		return both[1:], nil
	case "dual":
		return both, nil
	}
	return nil, fmt.Errorf("choose IP family: expected ipv4, ipv6 or dual, found %q", name)
}

// address is number n of the segment.
func address(segment netip.Prefix, n int) netip.Addr {
	bytes := segment.Addr().AsSlice()
	bytes[len(bytes)-1] = byte(n)
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// addresses are number n of every family's segment.
func (f family) addresses(n int) []netip.Addr {
	var all []netip.Addr
	for _, one := range f {
		all = append(all, address(one.segment, n))
	}
	return all
}

// list joins what of gives for every family.
func (f family) list(of func(i int) string) string {
	var all []string
	for i := range f {
		all = append(all, of(i))
	}
	return strings.Join(all, ",")
}

// makeSegment makes the bridge that all hosts are on, in the control plane.
func (c *Cluster) makeSegment(ctx context.Context) error {
	script := "ip link add br0 type bridge\nip link set br0 up\n" + c.addressScript("br0", 1)
	_, err := c.cp.exec(ctx, "sh", "-euc", script)
	return err
}

// addressScript is shell commands that give a device address number n.
func (c *Cluster) addressScript(dev string, n int) string {
	var script strings.Builder
	for _, one := range c.family {
		flags := ""
		if one.v6 {
			flags = "nodad" // usable at once; the addresses are ours to give
		}
		fmt.Fprintf(&script, "ip addr add %s/%d dev %s %s\n", address(one.segment, n), one.segment.Bits(), dev, flags)
	}
	return script.String()
}

// netns is the path of a process's network namespace.
func netns(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }

// connectNode joins a node to the segment, by a veth whose end on the node is
// eth0. The sysctls are what the documentation of Kubernetes asks of a node.
func (c *Cluster) connectNode(ctx context.Context, n *Node) error {
	netns, err := os.Open(n.Netns)
	if err != nil {
		return fmt.Errorf("open network namespace of %s: %w", n.Name, err)
	}
	defer netns.Close()
	port := fmt.Sprintf("n%d", n.index)
	err = c.cp.enter(func() error {
		// What a reboot leaves until the kernel gets to it.
		if old, err := netlink.LinkByName(port); err == nil {
			if err := netlink.LinkDel(old); err != nil {
				return fmt.Errorf("delete link %s: %w", port, err)
			}
		}
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return fmt.Errorf("find bridge br0: %w", err)
		}
		veth := &netlink.Veth{
			PeerName: "eth0", PeerNamespace: netlink.NsFd(netns.Fd()),
			// A network card keeps its address when the machine boots.
			PeerHardwareAddr: net.HardwareAddr{0x02, 0, 0, 0, byte(n.index >> 8), byte(n.index)},
		}
		veth.Name, veth.MasterIndex, veth.Flags = port, bridge.Attrs().Index, 1 // up
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add link %s: %w", port, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("connect %s: %w", n.Name, err)
	}
	script := "ip link set eth0 up\n" + c.addressScript("eth0", nodeOffset+n.index) + "sysctl -qw net.ipv4.ip_forward=1\n"
	for _, one := range c.family {
		script += fmt.Sprintf("ip route add default via %s dev eth0\n", address(one.segment, 1))
		if one.v6 {
			script += "sysctl -qw net.ipv6.conf.all.forwarding=1\n"
		}
	}
	_, err = n.host.exec(ctx, "sh", "-euc", script)
	return err
}
