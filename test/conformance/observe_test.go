// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Snapshot is everything in a namespace that a plugin could have changed, one
// line for each thing, sorted.
type Snapshot []string

// Snapshot observes a namespace.
func (c *C) Snapshot(n *Netns) Snapshot {
	var s Snapshot
	for _, observe := range []func(*Netns) (Snapshot, error){links, addresses, routes, rules, neighbours, ruleset} {
		lines, err := observe(n)
		c.Must(err, "observe "+n.Path)
		s = append(s, lines...)
	}
	slices.Sort(s)
	return s
}

// Unchanged expects two snapshots to be equal.
func (c *C) Unchanged(what string, before, after Snapshot) {
	for _, line := range before {
		if !slices.Contains(after, line) {
			c.Errorf("%s: gone: %s", what, line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			c.Errorf("%s: new: %s", what, line)
		}
	}
}

// byItself reports addresses and routes of IPv6 that the kernel adds to any
// interface, when its carrier comes up and not when it is made.
func byItself(dst *net.IPNet) bool {
	return dst != nil && (dst.IP.IsLinkLocalUnicast() && dst.IP.To4() == nil || dst.IP.IsMulticast())
}

// repeated retries a dump that the kernel interrupted because something
// changed meanwhile (NLM_F_DUMP_INTR).
func repeated[T any](list func() (T, error)) (T, error) {
	for {
		v, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return v, err
		}
	}
}

func links(n *Netns) (Snapshot, error) {
	all, err := repeated(n.LinkList)
	var s Snapshot
	for _, l := range all {
		a := l.Attrs()
		s = append(s, fmt.Sprintf("link %d %s %s mac %s mtu %d flags %s alias %q master %d",
			a.Index, a.Name, l.Type(), a.HardwareAddr, a.MTU, a.Flags&^net.FlagRunning, a.Alias, a.MasterIndex))
	}
	return s, err
}

func addresses(n *Netns) (Snapshot, error) {
	all, err := repeated(func() ([]netlink.Addr, error) { return n.AddrList(nil, netlink.FAMILY_ALL) })
	var s Snapshot
	for _, a := range all {
		if byItself(a.IPNet) {
			continue
		}
		// An IPv6 address leaves the tentative state by itself.
		s = append(s, fmt.Sprintf("address %s link %d flags %#x", a.IPNet, a.LinkIndex, a.Flags&^unix.IFA_F_TENTATIVE))
	}
	return s, err
}

func routes(n *Netns) (Snapshot, error) {
	var s Snapshot
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := allRoutes(n, family)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			// Anycast routes follow from forwarding, which stays on.
			if byItself(r.Dst) || r.Type == unix.RTN_ANYCAST {
				continue
			}
			s = append(s, fmt.Sprintf("route %s table %d protocol %d", r, r.Table, r.Protocol))
		}
	}
	return s, nil
}

func allRoutes(n *Netns, family int) ([]netlink.Route, error) {
	return repeated(func() ([]netlink.Route, error) {
		return n.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
}

func rules(n *Netns) (Snapshot, error) {
	all, err := repeated(func() ([]netlink.Rule, error) { return n.RuleList(netlink.FAMILY_ALL) })
	var s Snapshot
	for _, r := range all {
		s = append(s, "rule "+r.String())
	}
	return s, err
}

// neighbours lists the permanent entries; others come and go by themselves.
func neighbours(n *Netns) (Snapshot, error) {
	var s Snapshot
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := repeated(func() ([]netlink.Neigh, error) { return n.NeighList(0, family) })
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if e.State&netlink.NUD_PERMANENT != 0 {
				s = append(s, fmt.Sprintf("neighbour %s %s link %d", e.IP, e.HardwareAddr, e.LinkIndex))
			}
		}
	}
	return s, nil
}

// ruleset lists what nft lists; iptables rules are part of it with the nft
// backend, which is Debian's.
func ruleset(n *Netns) (Snapshot, error) {
	var out, stderr bytes.Buffer
	cmd := exec.Command("nft", "--stateless", "list", "ruleset")
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.Env = []string{"PATH=" + searchPath}
	if err := n.Do(cmd.Run); err != nil {
		return nil, fmt.Errorf("nft list ruleset: %w: %s", err, stderr.String())
	}
	var s Snapshot
	for i, line := range strings.Split(out.String(), "\n") {
		if line != "" {
			s = append(s, fmt.Sprintf("nft %3d %s", i, line))
		}
	}
	return s, nil
}

// HasLink reports whether a namespace has an interface of this name.
func (n *Netns) HasLink(name string) bool {
	_, err := n.LinkByName(name)
	return err == nil
}

// Link returns an interface that must be there.
func (c *C) Link(n *Netns, name string) netlink.Link {
	l, err := n.LinkByName(name)
	if err != nil {
		c.Fatalf("interface %s in %s: %v", name, n.Path, err)
	}
	return l
}

// HasAddr reports whether an interface has an address, with any prefix length.
func (c *C) HasAddr(n *Netns, link string, addr netip.Addr) bool {
	l := c.Link(n, link)
	all, err := repeated(func() ([]netlink.Addr, error) { return n.AddrList(l, netlink.FAMILY_ALL) })
	c.Must(err, "list addresses")
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == addr {
			return true
		}
	}
	return false
}

// RouteTo returns the routes of a namespace to exactly this destination, in
// any table.
func (c *C) RouteTo(n *Netns, dst netip.Prefix) []netlink.Route {
	family := netlink.FAMILY_V4
	if dst.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := allRoutes(n, family)
	c.Must(err, "list routes")
	var found []netlink.Route
	for _, r := range all {
		if prefixOf(r.Dst, family) == dst {
			found = append(found, r)
		}
	}
	return found
}

// prefixOf converts a destination; the library says nil for some default
// routes.
func prefixOf(n *net.IPNet, family int) netip.Prefix {
	if n == nil && family == netlink.FAMILY_V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	if n == nil {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}

// HostEnd returns the host's end of the interface pair whose other end is in
// the pod.
func (c *C) HostEnd(p *Pod, ifname string) netlink.Link {
	peer := c.Link(p.Netns, ifname).Attrs().ParentIndex
	l, err := c.Host.LinkByIndex(peer)
	if err != nil {
		c.Fatalf("the host's end of %s, index %d: %v", ifname, peer, err)
	}
	return l
}

// Pings expects a UDP datagram to pass from one namespace to an address in
// another.
func (c *C) Pings(from *Netns, to *Netns, addr netip.Addr) {
	listener, err := openUDP(to, addr)
	c.Must(err, "listen")
	defer listener.Close()
	sender, err := openUDP(from, addr)
	c.Must(err, "open a socket")
	defer sender.Close()
	target := netip.AddrPortFrom(addr, listener.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	buf := make([]byte, 16)
	got := c.Until(settle, func() bool {
		if _, err := sender.WriteToUDPAddrPort([]byte("weft"), target); err != nil {
			return false
		}
		_ = listener.SetReadDeadline(soon())
		n, _, err := listener.ReadFromUDPAddrPort(buf)
		return err == nil && string(buf[:n]) == "weft"
	})
	if !got {
		c.Errorf("no datagram passes from %s to %s in %s", from.Path, addr, to.Path)
	}
}

// openUDP opens a socket in a namespace, of the family of an address and with
// a port that the kernel chooses.
func openUDP(n *Netns, like netip.Addr) (conn *net.UDPConn, err error) {
	network := "udp6"
	if like.Is4() {
		network = "udp4"
	}
	err = n.Do(func() (err error) {
		conn, err = net.ListenUDP(network, nil)
		return err
	})
	return conn, err
}

// forward switches forwarding on in the host, as a node's administrator does
// where the plugin leaves it to him.
func (c *C) forward() {
	c.setSysctl(c.Host, "net/ipv4/ip_forward", "1")
	c.setSysctl(c.Host, "net/ipv6/conf/all/forwarding", "1")
}

// setSysctl sets a kernel parameter of a namespace.
func (c *C) setSysctl(n *Netns, key, value string) {
	c.Must(n.setSysctl(key, value), "set "+key)
}

func (n *Netns) setSysctl(key, value string) error {
	return n.Do(func() error { return os.WriteFile("/proc/sys/"+key, []byte(value), 0) })
}

// containsCompact reports whether JSON, without white space, contains a text.
func containsCompact(data []byte, text string) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, data) == nil && strings.Contains(compact.String(), text)
}

// removeAddr takes an address away from an interface.
func (c *C) removeAddr(n *Netns, link string, addr netip.Addr) {
	l := c.Link(n, link)
	all, err := repeated(func() ([]netlink.Addr, error) { return n.AddrList(l, netlink.FAMILY_ALL) })
	c.Must(err, "list addresses")
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == addr {
			c.Must(n.AddrDel(l, &a), "delete the address")
			return
		}
	}
	c.Fatalf("set up: %s does not have %s", link, addr)
}

// dropPermanent removes the permanent IPv4 neighbours of an interface.
func (c *C) dropPermanent(n *Netns, l netlink.Link) {
	all, err := repeated(func() ([]netlink.Neigh, error) { return n.NeighList(l.Attrs().Index, netlink.FAMILY_V4) })
	c.Must(err, "list neighbours")
	dropped := 0
	for _, e := range all {
		if e.State&netlink.NUD_PERMANENT != 0 {
			c.Must(n.NeighDel(&e), "delete a neighbour")
			dropped++
		}
	}
	if dropped == 0 {
		c.Fatalf("set up: %s has no permanent neighbour", l.Attrs().Name)
	}
}

// mislead gives the host a wrong hardware address for a neighbour.
func (c *C) mislead(n *Netns, l netlink.Link, addr netip.Addr) {
	c.Must(n.NeighSet(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: addr.AsSlice(), HardwareAddr: net.HardwareAddr{0x02, 0, 0, 0, 0, 0x99},
	}), "set a neighbour")
}

// shape puts a token bucket on an interface, as the bandwidth plugin does.
func (c *C) shape(n *Netns, l netlink.Link) {
	c.Must(n.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       1 << 20, Limit: 1 << 16, Buffer: 1 << 16,
	}), "add a queueing discipline")
}

// inHost runs a command in the host's namespace and returns its output.
func (c *C) inHost(argv ...string) string {
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = []string{"PATH=" + searchPath}
	if err := c.Host.Do(cmd.Run); err != nil {
		c.Fatalf("set up: %v: %v: %s", argv, err, out.String())
	}
	return out.String()
}
