// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetNodeAddresses gives a node other addresses on its segment, at most one per
// family, in place of those that it has; as a DHCP server or an administrator
// does, without a word to the agent. The default routes stay. Repeated, it
// finishes what was interrupted.
func (h Host) SetNodeAddresses(name, node string, addrs []netip.Addr) error {
	return h.onNode(name, node, func(l *lab, n Node) error {
		if err := l.complete(n); err != nil {
			return err
		}
		wanted, err := l.uplinkAddresses(n, addrs)
		if err != nil {
			return err
		}
		n.Addrs = wanted
		if err := l.completed(n); err != nil {
			return err
		}
		if err := l.readdress(n); err != nil {
			return fmt.Errorf("set addresses of %s: %w", n.Name, err)
		}
		l.say("%s: addresses %s", n.Name, hosts(n.Addrs))
		return nil
	})
}

// uplinkAddresses completes addresses by their segment's prefix lengths, and
// refuses those that are not free for the node.
func (l *lab) uplinkAddresses(n Node, addrs []netip.Addr) ([]netip.Prefix, error) {
	if len(addrs) == 0 || len(families(addrs)) != len(addrs) {
		return nil, fmt.Errorf("addresses %v of %s: want one, or one of each family", addrs, n.Name)
	}
	i := slices.IndexFunc(l.topo.Segments, func(s Segment) bool { return s.Name == n.Segment })
	var wanted []netip.Prefix
	for _, gw := range l.topo.Segments[i].Gateways {
		a, given := inFamilyOf(gw.Addr(), addrs)
		if !given {
			continue
		}
		switch {
		case !gw.Masked().Contains(a) || a == gw.Addr() || a == gw.Masked().Addr():
			return nil, fmt.Errorf("address %s of %s: want one of %s, and not the router's", a, n.Name, gw.Masked())
		case l.othersAddress(n, a):
			return nil, fmt.Errorf("address %s of %s: it is for another node", a, n.Name)
		}
		wanted = append(wanted, netip.PrefixFrom(a, gw.Bits()))
	}
	if len(wanted) != len(addrs) {
		return nil, fmt.Errorf("addresses %v of %s: the lab is of family %s", addrs, n.Name, l.spec.Family)
	}
	return wanted, nil
}

// othersAddress reports whether another node has an address, or would have if
// it were added.
func (l *lab) othersAddress(n Node, a netip.Addr) bool {
	others := slices.Clone(l.topo.Nodes)
	for number := 1; number <= MaxNodes; number++ {
		for segment := 1; segment <= l.spec.Segments; segment++ {
			others = append(others, placeNode(l.spec.Family, number, segment))
		}
	}
	return slices.ContainsFunc(others, func(o Node) bool { return o.Number != n.Number && slices.Contains(bare(o.Addrs), a) })
}

// readdress brings the uplink to the node's addresses. With an IPv4 address the
// kernel removes the others of its subnet that came later, and the routes that
// need it, so deletions go first and all that is wanted is made again.
func (l *lab) readdress(n Node) error {
	h, ns, err := netlinkIn(l.l.netns(n.Name))
	if err != nil {
		return err
	}
	defer ns.Close()
	defer h.Close()
	uplink, err := h.LinkByName(UplinkName)
	if err != nil {
		return fmt.Errorf("find %s: %w", UplinkName, err)
	}
	has, err := h.AddrList(uplink, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range has {
		old, err := netip.ParsePrefix(a.IPNet.String())
		if err != nil || a.Scope != unix.RT_SCOPE_UNIVERSE || slices.Contains(n.Addrs, old) {
			continue
		}
		if err := h.AddrDel(uplink, &netlink.Addr{IPNet: a.IPNet}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("delete address %s: %w", old, err)
		}
	}
	for _, a := range n.Addrs {
		if err := h.AddrReplace(uplink, withoutDAD(a)); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	return setDefaultRoutes(h, n)
}
