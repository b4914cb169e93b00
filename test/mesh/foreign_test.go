// SPDX-License-Identifier: Apache-2.0

package mesh

import "strings"

// plantForeign puts objects of others beside ours on a node, and returns how
// the kernel shows them.
func (m *mesh) plantForeign(node string) set {
	m.Helper()
	for _, command := range []string{
		// Likenesses of ours: an interface with our prefix, our
		// device's name as an alternative name, our table's name in another family.
		"ip link add weftforeign type bridge",
		"ip link set weftforeign addrgenmode none up",
		"ip link property add dev weftforeign altname weft-vxlan-foreign",
		"ip link add vxforeign type vxlan id 77 dstport 4790 nolearning",
		"ip link set vxforeign addrgenmode none up",
		"bridge fdb append 02:77:00:00:00:01 dev vxforeign dst 192.0.2.78 self permanent",
		"ip neigh add 192.0.2.78 lladdr 02:77:00:00:00:01 dev vxforeign nud permanent",
		"ip neigh add 192.0.2.79 lladdr 02:77:00:00:00:02 dev lo nud permanent",
		"ip route add 192.0.2.128/25 dev weftforeign proto 120",
		"ip route add 192.0.2.64/30 dev weftforeign proto static metric 7",
		"ip route add unreachable 2001:db8:77::/64 proto 120",
		"ip rule add from 192.0.2.77 table 77 pref 777",
		"nft add table ip weft",
		"nft add chain ip weft postrouting { type nat hook postrouting priority srcnat + 1 ; }",
		"nft add rule ip weft postrouting ip saddr 192.0.2.77 counter accept",
		"nft add table inet foreign",
		"nft add set inet foreign sources4 { type ipv4_addr ; flags interval ; elements = { 192.0.2.0/24 } ; }",
	} {
		words := strings.Fields(command)
		m.do(node, words[0], words[1:]...)
	}
	if _, ipv4 := addrOf(m.nodes[node], true); ipv4 {
		m.do(node, "ip", "address", "add", "192.0.2.77/32", "dev", "vxforeign")
	}
	return m.seeForeign(node)
}

// seeForeign lists the objects of plantForeign.
func (m *mesh) seeForeign(node string) set {
	m.Helper()
	seen := set{}
	for _, command := range []string{
		"ip -br link show dev weftforeign",
		"ip -d -br link show dev vxforeign",
		"ip -br address show dev vxforeign",
		"bridge fdb show dev vxforeign",
		"ip neigh show dev vxforeign",
		"ip neigh show dev lo nud permanent",
		"ip route show table all dev weftforeign",
		"ip -6 route show proto 120",
		"ip rule show pref 777",
		"nft list table ip weft",
		"nft list table inet foreign",
	} {
		words := strings.Fields(command)
		for line := range strings.Lines(m.do(node, words[0], words[1:]...)) {
			if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "packets") && !strings.Contains(line, "proto kernel") {
				seen.add("%s: %s", command, line)
			}
		}
	}
	return seen
}

// checkForeign verifies that nothing foreign was touched.
func (m *mesh) checkForeign() {
	m.Helper()
	for _, node := range m.nodeNames() {
		if diff := m.seeForeign(node).diff(m.foreign[node]); len(diff) > 0 {
			m.Errorf("%s: foreign objects, compared with before:\n\t%s", node, strings.Join(diff, "\n\t"))
		}
	}
}
