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

// wiring makes the links, addresses and routes of a topology. Its two handles
// talk to one namespace each; the caller's own is not involved.
type wiring struct {
	l layout
	t Topology
}

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

// make makes the whole topology in namespaces that exist and are empty.
func (w wiring) make() error {
	if err := w.makeOutside(); err != nil {
		return err
	}
	for _, n := range w.t.Nodes {
		if err := w.makeNode(n); err != nil {
			return err
		}
	}
	return nil
}

// makeOutside makes the router between the segments and the outside host,
// which is one namespace. The host's addresses sit on lo, so they are on no
// segment and a node reaches them through its default route only.
func (w wiring) makeOutside() error {
	path := w.l.netns(OutsideName)
	h, ns, err := netlinkIn(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	defer h.Close()
	if err := configureLink(h, "lo", w.t.Outside); err != nil {
		return fmt.Errorf("%s: %w", OutsideName, err)
	}
	for _, s := range w.t.Segments {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.Name}}
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

// makeNode connects a node to its segment. Forwarding is off in the node, as
// on a machine that was just installed: turning it on is the product's work,
// and the lab would hide it if that were forgotten.
func (w wiring) makeNode(n Node) error {
	path := w.l.netns(n.Name)
	h, ns, err := netlinkIn(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	defer h.Close()
	outside, outsideNS, err := netlinkIn(w.l.netns(OutsideName))
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
	if err := errors.Join(setSysctls(path, noDAD(UplinkName)), setSysctls(w.l.netns(OutsideName), noDAD(n.Name))); err != nil {
		return err
	}
	if err := errors.Join(configureLink(outside, n.Name, nil), configureLink(h, UplinkName, n.Addrs)); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return addDefaultRoutes(h, n)
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

func addDefaultRoutes(h *netlink.Handle, n Node) error {
	uplink, err := h.LinkByName(UplinkName)
	if err != nil {
		return fmt.Errorf("%s: find %s: %w", n.Name, UplinkName, err)
	}
	for _, gw := range n.Gateways {
		dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if gw.Is6() {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		route := &netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: ipNet(dst), Gw: gw.AsSlice()}
		if err := h.RouteAdd(route); err != nil {
			return fmt.Errorf("%s: add default route via %s: %w", n.Name, gw, err)
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
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add address %s to %s: %w", a, name, err)
		}
	}
	return nil
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
