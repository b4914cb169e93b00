// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// The links, addresses and routes of a topology. Each handle talks to one
// namespace; the caller's own is not involved.

// netlinkIn opens netlink inside the namespace at path. Close both.
func netlinkIn(path string) (*netlink.Handle, *kernel.Netns, error) {
	ns, err := openNetns(path)
	if err != nil {
		return nil, nil, err
	}
	h, err := netlink.NewHandleAt(vnetns.NsHandle(ns.FD()), unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return nil, nil, fmt.Errorf("open netlink in %s: %w", path, err)
	}
	return h, ns, nil
}

// makeOutside makes the router between the segments and the outside host,
// which is one namespace. The host's addresses sit on lo, so they are on no
// segment and a node reaches them through its default route only.
func (l *lab) makeOutside() error {
	path := l.l.netns(OutsideName)
	h, ns, err := netlinkIn(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	defer h.Close()
	if err := configureLink(h, "lo", l.topo.Outside); err != nil {
		return fmt.Errorf("%s: %w", OutsideName, err)
	}
	for i, s := range l.topo.Segments {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.Name, HardwareAddr: routerMAC(i)}}
		if err := h.LinkAdd(bridge); err != nil {
			return fmt.Errorf("%s: make bridge %s: %w", OutsideName, s.Name, err)
		}
		if err := setSysctls(path, noDAD(s.Name)); err != nil {
			return err
		}
		if err := configureLink(h, s.Name, s.Gateways); err != nil {
			return fmt.Errorf("%s: %w", OutsideName, err)
		}
	}
	return setSysctls(path, map[string]string{
		"net/ipv4/ip_forward":          "1",
		"net/ipv6/conf/all/forwarding": "1",
	})
}

// routerMAC returns the router's hardware address on a segment. A bridge that
// is given none takes that of one of its ports, and another when that port
// goes; to the nodes the router would seem to be replaced each time.
func routerMAC(segment int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, 0, 0, 1, byte(segment)} // locally administered
}

// connect connects a node to its segment. Forwarding is off in the node, as
// on a machine that was just installed: turning it on is the product's work,
// and the lab would hide it if that were forgotten.
func (l *lab) connect(n Node) error {
	path := l.l.netns(n.Name)
	h, ns, err := netlinkIn(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	defer h.Close()
	outside, outsideNS, err := netlinkIn(l.l.netns(OutsideName))
	if err != nil {
		return err
	}
	defer outsideNS.Close()
	defer outside.Close()

	err = setSysctls(path, map[string]string{
		"net/ipv4/ip_forward":          "0",
		"net/ipv6/conf/all/forwarding": "0",
	})
	if err != nil {
		return err
	}
	if err := configureLink(h, "lo", nil); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: UplinkName},
		PeerName:      n.Name,
		PeerNamespace: netlink.NsFd(outsideNS.FD()),
	}
	if err := h.LinkAdd(veth); err != nil {
		return fmt.Errorf("%s: make %s: %w", n.Name, UplinkName, err)
	}
	if err := plug(outside, n.Name, n.Segment); err != nil {
		return fmt.Errorf("%s: %w", OutsideName, err)
	}
	if err := errors.Join(setSysctls(path, noDAD(UplinkName)), setSysctls(l.l.netns(OutsideName), noDAD(n.Name))); err != nil {
		return err
	}
	if err := errors.Join(configureLink(outside, n.Name, nil), configureLink(h, UplinkName, n.Addrs)); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return setDefaultRoutes(h, n)
}

// disconnect takes a node off its segment for good: with one end of the uplink
// the other goes. It succeeds where there is none.
func (l *lab) disconnect(n Node) error {
	err := l.port(n, func(outside *netlink.Handle, port netlink.Link) error { return outside.LinkDel(port) })
	if gone := (netlink.LinkNotFoundError{}); errors.As(err, &gone) {
		return nil
	}
	return err
}

// port lends f the far end of a node's uplink, the port of the bridge.
func (l *lab) port(n Node, f func(outside *netlink.Handle, port netlink.Link) error) error {
	outside, ns, err := netlinkIn(l.l.netns(OutsideName))
	if err != nil {
		return err
	}
	defer ns.Close()
	defer outside.Close()
	port, err := outside.LinkByName(n.Name)
	if err != nil {
		return fmt.Errorf("%s: find port %s: %w", OutsideName, n.Name, err)
	}
	return f(outside, port)
}

// plug makes a link a port of a bridge.
func plug(h *netlink.Handle, port, bridge string) error {
	p, err := h.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find port %s: %w", port, err)
	}
	b, err := h.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", bridge, err)
	}
	if err := h.LinkSetMaster(p, b); err != nil {
		return fmt.Errorf("plug %s into %s: %w", port, bridge, err)
	}
	return nil
}

// setDefaultRoutes makes a default route through each gateway that the node has
// an address for.
func setDefaultRoutes(h *netlink.Handle, n Node) error {
	uplink, err := h.LinkByName(UplinkName)
	if err != nil {
		return fmt.Errorf("%s: find %s: %w", n.Name, UplinkName, err)
	}
	for _, gw := range n.Gateways {
		if _, speaks := inFamilyOf(gw, bare(n.Addrs)); !speaks {
			continue
		}
		dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if gw.Is6() {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		route := &netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: ipNet(dst), Gw: gw.AsSlice()}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("%s: set default route via %s: %w", n.Name, gw, err)
		}
	}
	return nil
}

// configureLink sets the link up, then adds the addresses: a default route can
// only go through a link that is up. Addresses skip duplicate detection, which
// would keep IPv6 unusable for a second or more.
func configureLink(h *netlink.Handle, name string, addrs []netip.Prefix) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	for _, a := range addrs {
		if err := h.AddrAdd(link, withoutDAD(a)); err != nil {
			return fmt.Errorf("add address %s to %s: %w", a, name, err)
		}
	}
	return nil
}

// withoutDAD is an address that skips duplicate detection, which only IPv6 has.
func withoutDAD(a netip.Prefix) *netlink.Addr {
	addr := &netlink.Addr{IPNet: ipNet(a)}
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// noDAD makes the link-local address of a link usable at once.
func noDAD(link string) map[string]string {
	return map[string]string{filepath.Join("net/ipv6/conf", link, "accept_dad"): "0"}
}

// setSysctls writes kernel parameters inside a namespace. /proc/sys/net shows
// the namespace of the thread that opens it.
func setSysctls(netns string, values map[string]string) error {
	return inNetns(netns, func() error {
		for key, value := range values {
			if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0); err != nil {
				return fmt.Errorf("set kernel parameter %s=%s in %s: %w", key, value, netns, err)
			}
		}
		return nil
	})
}
