// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// protocol is that of Weft's routes (rtm_protocol).
const protocol = 119

// table is one look at a node's kernel.
type table struct {
	h     *netlink.Handle
	links map[int]netlink.Link
	lines set
}

// observe returns what a node's kernel holds of Weft's.
func (m *mesh) observe(node string) (set, error) {
	ns, err := kernel.OpenNetns(m.path("netns", node))
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(vnetns.NsHandle(ns.FD()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	t := table{h: h, links: map[int]netlink.Link{}, lines: set{}}
	if err := errors.Join(t.observeLinks(), t.observeRoutes()); err != nil {
		return nil, fmt.Errorf("%s: %w", node, err)
	}
	if err := ns.Do(func() error { return t.observeForwarding() }); err != nil {
		return nil, err
	}
	return t.lines, m.observeMasquerade(node, t.lines)
}

func (t *table) observeLinks() error {
	links, err := t.h.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		a := l.Attrs()
		t.links[a.Index] = l
		switch l := l.(type) {
		case *netlink.Vxlan:
			if strings.HasPrefix(a.Name, "weft") {
				err = errors.Join(err, t.observeDevice(l))
			}
		case *netlink.Veth:
			if strings.HasPrefix(a.Alias, "weft ") {
				t.lines.add("interface of %s mtu %d", podOf(l), a.MTU)
			}
		}
	}
	return err
}

// podOf returns "pod <name>" for the host's end of a pod's interface, else the
// link's name.
func podOf(l netlink.Link) string {
	if a := l.Attrs(); strings.HasPrefix(a.Alias, "weft ") && strings.Contains(a.Alias, " lab/") {
		return "pod " + a.Alias[strings.LastIndex(a.Alias, "/")+1:]
	}
	return l.Attrs().Name
}

// observeDevice lists a VXLAN device and what is on it.
func (t *table) observeDevice(l *netlink.Vxlan) error {
	a := l.Attrs()
	state := "up"
	if a.RawFlags&unix.IFF_UP == 0 {
		state = "down"
	}
	if l.Learning {
		state += " learning"
	}
	t.lines.add("link %s vni %d port %d local %s mac %s mtu %d %s", a.Name, l.VxlanId, l.Port, l.SrcAddr, a.HardwareAddr, a.MTU, state)
	addrs, err := t.h.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, one := range addrs {
		if !one.IP.IsLinkLocalUnicast() {
			t.lines.add("address %s dev %s", one.IPNet, a.Name)
		}
	}
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := t.h.NeighList(a.Index, f)
		if err != nil {
			return err
		}
		for _, n := range list {
			// Multicast has entries that the kernel makes.
			if n.State&unix.NUD_NOARP == 0 {
				t.lines.add("neighbour %s lladdr %s dev %s%s", n.IP, n.HardwareAddr, a.Name, notPermanent(n))
			}
		}
	}
	list, err := t.h.NeighList(a.Index, unix.AF_BRIDGE)
	for _, n := range list {
		t.lines.add("fdb %s dst %s dev %s%s", n.HardwareAddr, n.IP, a.Name, notPermanent(n))
	}
	return err
}

func notPermanent(n netlink.Neigh) string {
	if n.State&unix.NUD_PERMANENT != 0 {
		return ""
	}
	return fmt.Sprintf(" state %#x", n.State)
}

func (t *table) observeRoutes() error {
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := t.h.RouteListFiltered(f, &netlink.Route{Protocol: protocol, Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		for _, r := range list {
			t.lines.add("route %s", t.describe(r, f))
		}
	}
	return nil
}

func (t *table) describe(r netlink.Route, f int) string {
	text, normal := r.Dst.String(), 0
	if f == netlink.FAMILY_V6 {
		normal = 1024
	}
	usual := unix.RT_TABLE_MAIN
	switch r.Type {
	case unix.RTN_UNICAST:
		switch {
		case r.Gw != nil:
			text += " via " + r.Gw.String()
		case r.Via != nil:
			text += " via " + strings.Fields(r.Via.String())[len(strings.Fields(r.Via.String()))-1]
		}
		if l, known := t.links[r.LinkIndex]; known {
			text += " dev " + podOf(l)
		} else {
			text += fmt.Sprintf(" dev number %d", r.LinkIndex)
		}
		if r.Flags&unix.RTNH_F_ONLINK != 0 {
			text += " onlink"
		}
	case unix.RTN_UNREACHABLE:
		text = "unreachable " + text
	case unix.RTN_LOCAL:
		text, usual = "local "+text, unix.RT_TABLE_LOCAL
	default:
		text = fmt.Sprintf("type %d %s", r.Type, text)
	}
	if len(r.MultiPath) > 0 {
		text += fmt.Sprintf(" next hops %v", r.MultiPath)
	}
	if r.Table != usual {
		text += fmt.Sprintf(" table %d", r.Table)
	}
	if r.Priority != normal {
		text += fmt.Sprintf(" metric %d", r.Priority)
	}
	return text
}

// observeForwarding is called in the namespace.
func (t *table) observeForwarding() error {
	for f, file := range map[string]string{"IPv4": "ipv4/ip_forward", "IPv6": "ipv6/conf/all/forwarding"} {
		text, err := os.ReadFile("/proc/sys/net/" + file)
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(text)) == "1" {
			t.lines.add("forwarding %s", f)
		}
	}
	return nil
}

// observeMasquerade lists the rules by the sets that they look up.
func (m *mesh) observeMasquerade(node string, lines set) error {
	tables, err := m.run(node, "nft", "list", "tables")
	if err != nil || !strings.Contains(tables, "table inet weft\n") {
		return err
	}
	text, err := m.run(node, "nft", "-j", "list", "table", "inet", "weft")
	if err != nil {
		return err
	}
	var all struct {
		Objects []struct {
			Set *struct {
				Name     string            `json:"name"`
				Elements []json.RawMessage `json:"elem"`
			} `json:"set"`
			Rule json.RawMessage `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return fmt.Errorf("%s: nftables table weft: %w", node, err)
	}
	sets := map[string][]netip.Prefix{}
	for _, o := range all.Objects {
		if o.Set == nil {
			continue
		}
		for _, raw := range o.Set.Elements {
			list, err := element(raw)
			if err != nil {
				return fmt.Errorf("%s: set %s: %w", node, o.Set.Name, err)
			}
			sets[o.Set.Name] = append(sets[o.Set.Name], list...)
		}
	}
	for _, o := range all.Objects {
		rule := string(o.Rule)
		for _, f := range []string{"4", "6"} {
			if strings.Contains(rule, "@sources"+f) && strings.Contains(rule, "@direct"+f) && strings.Contains(rule, `"masquerade"`) {
				lines.add("masquerade from %s, but not to %s", ranges(sets["sources"+f], f == "4"), ranges(sets["direct"+f], f == "4"))
			}
		}
	}
	return nil
}

// element reads an element of a set: an address, a prefix or a range.
func element(raw json.RawMessage) ([]netip.Prefix, error) {
	var e struct {
		Prefix *struct {
			Addr netip.Addr `json:"addr"`
			Len  int        `json:"len"`
		} `json:"prefix"`
		Range []netip.Addr `json:"range"`
	}
	var a netip.Addr
	if json.Unmarshal(raw, &a) == nil {
		return []netip.Prefix{bits(a)}, nil
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, err
	}
	if e.Prefix != nil {
		return []netip.Prefix{netip.PrefixFrom(e.Prefix.Addr, e.Prefix.Len)}, nil
	}
	var list []netip.Prefix
	for a := e.Range[0]; a.IsValid() && !e.Range[1].Less(a); { // the largest prefixes that fit
		p := bits(a)
		for p.Bits() > 0 {
			wider := netip.PrefixFrom(a, p.Bits()-1)
			if wider.Masked().Addr() != a || e.Range[1].Less(lastOf(wider)) {
				break
			}
			p = wider
		}
		list = append(list, p)
		a = lastOf(p).Next()
	}
	return list, nil
}
