// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/lab"
)

// restoreUplink gives a node what an administrator's configuration would give
// its uplink.
func (m *mesh) restoreUplink(node string) {
	m.Helper()
	n := m.nodes[node]
	for _, a := range n.Addrs {
		command := "ip address replace " + a.String() + " dev " + lab.UplinkName
		if a.Addr().Is6() {
			command += " nodad"
		}
		m.all(node, command)
	}
	for _, gw := range n.Gateways {
		m.all(node, fmt.Sprintf("ip route replace default via %s dev %s", gw, lab.UplinkName))
	}
}

func bouncingUplink(m *mesh) {
	talks := append(m.dialogues("p3", "p1"), m.dialogues("p3", "p2")...)
	m.all("node3", "ip link set "+lab.UplinkName+" down", "ip link set "+lab.UplinkName+" up")
	m.restoreUplink("node3")
	m.converged("an uplink went down and up")
	m.talk("connections after an uplink went down and up", talks)
}

// move gives node3 another address of one family, or both. The new one comes
// first, or the old one goes first, with every route that the kernel ties to it.
func (m *mesh) move(what string, newFirst bool, to ...netip.Prefix) {
	m.Helper()
	m.all("node3", "sysctl -q -w net.ipv4.conf.all.promote_secondaries=1")
	talks := append(m.dialogues("p3", "p1"), m.dialogues("p3", "p2")...)
	flows := append(m.flows("p3", "p1"), m.flows("p3", "p2")...)
	n := m.nodes["node3"]
	n.Addrs = slices.Clone(n.Addrs)
	for _, p := range to {
		i := slices.IndexFunc(n.Addrs, func(old netip.Prefix) bool { return old.Addr().Is4() == p.Addr().Is4() })
		if newFirst {
			m.all("node3", fmt.Sprintf("ip address add %s dev %s nodad", p, lab.UplinkName))
		}
		m.all("node3", fmt.Sprintf("ip address del %s dev %s", n.Addrs[i], lab.UplinkName))
		n.Addrs[i] = p
	}
	m.nodes["node3"], m.moved["node3"] = n, n
	m.restoreUplink("node3")
	m.converged(what)
	since := now(flows)
	m.talk("connections after "+what, talks)
	m.eventually("the flows flow again", bound, func() error {
		for _, f := range flows {
			if f.sent.Load() < since[f]+50 {
				return fmt.Errorf("%s is at %d of %d", f.name, f.sent.Load(), since[f]+50)
			}
		}
		return nil
	})
	m.lossless(what, since, flows...)
}

func movingIPv6(m *mesh) {
	watches := m.watchAll("node1", "node2")
	m.move("a node's IPv6 address changed", true, netip.MustParsePrefix("2001:db8:18:1::113/64"))
	// node1 is on the same segment: its IPv6 route is by that address. From
	// node2 everything goes by VXLAN over IPv4.
	m.saw(watches["node1"], "route IPv6")
	m.saw(watches["node2"])
}

func movingIPv4(m *mesh) {
	watches := m.watchAll("node1", "node2")
	m.move("a node's IPv4 address changed", true, netip.MustParsePrefix("198.18.1.113/24"))
	m.saw(watches["node1"], "route IPv4")
	m.saw(watches["node2"], "fdb IPv4")
}

func movingBoth(m *mesh) {
	m.move("both addresses of a node changed", false, netip.MustParsePrefix("198.18.1.13/24"), netip.MustParsePrefix("2001:db8:18:1::13/64"))
	delete(m.moved, "node3")
}
