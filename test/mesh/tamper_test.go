// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"weft.dev/weft/internal/lab"
)

// all executes commands on a node; all must succeed.
func (m *mesh) all(node string, commands ...string) {
	m.Helper()
	for _, c := range commands {
		words := strings.Fields(c)
		m.do(node, words[0], words[1:]...)
	}
}

// each returns a command for every line of the first column of another one's
// output.
func (m *mesh) each(node, list, format string) (commands []string) {
	m.Helper()
	words := strings.Fields(list)
	for line := range strings.Lines(m.do(node, words[0], words[1:]...)) {
		commands = append(commands, strings.ReplaceAll(format, "%", strings.Fields(line)[0]))
	}
	return commands
}

func tamperedDevices(m *mesh) {
	m.all("node1", "ip link delete weft-vxlan")
	m.all("node2", "ip link set weft-vxlan down")
	m.all("node3", m.each("node3", "bridge fdb show dev weft-vxlan", "bridge fdb del % dev weft-vxlan")...)
	m.all("node4", "ip link set weft-vxlan mtu 1300")
	m.converged("devices were deleted, set down, emptied, changed")

	m.all("node1", "ip link set weft-vxlan type vxlan learning", "ip address flush dev weft-vxlan")
	m.all("node2", "ip link set weft-vxlan address 02:00:00:00:00:99", "ip address add 10.99.9.9/32 dev weft-vxlan")
	m.all("node3", "ip neigh flush dev weft-vxlan nud permanent",
		"ip neigh add 10.42.99.1 lladdr 02:99:00:00:00:01 dev weft-vxlan nud permanent",
		"bridge fdb append 02:99:00:00:00:01 dev weft-vxlan dst 198.18.9.9 self permanent")
	m.all("node4", m.each("node4", "bridge fdb show dev weft-vxlan", "bridge fdb replace % dev weft-vxlan dst 198.18.9.9 self permanent")...)
	m.all("node4", "ip link set weft-vxlan down", "ip link set weft-vxlan up")
	m.converged("addresses, neighbours and entries were changed")

	// The kernel tells nobody who follows routing of these; what looks every
	// minute need not wait so long here.
	m.all("node1", "nft flush chain inet weft postrouting", "sysctl -q -w net.ipv4.ip_forward=0")
	m.all("node2", "nft delete table inet weft", "sysctl -q -w net.ipv6.conf.all.forwarding=0")
	m.all("node3", "nft flush set inet weft direct4")
	m.all("node4", "ip link set weft-vxlan down", "ip link set weft-vxlan name gone")
	for _, n := range m.nodeNames() {
		m.bounce(n)
	}
	m.all("node4", "ip link delete gone")
	m.converged("tables and parameters were changed, a device was renamed, and agents were restarted")
}

func foreignDevice(m *mesh) {
	m.kill("node1")
	m.all("node1", "ip link delete weft-vxlan", "ip link add weft-vxlan type bridge", "ip link set weft-vxlan up")
	m.restart("node1")
	m.problem("node1", "kernel links", "weft-vxlan", "bridge", "delete or rename it")
	m.all("node1", "ip -d link show dev weft-vxlan type bridge", "ip link delete weft-vxlan")
	m.converged("the device of another kind went")
}

func tamperedRoutes(m *mesh) {
	own, own6 := m.leaseOf("node1", true).String(), m.leaseOf("node1", false).String()
	near, near6 := m.leaseOf("node3", true).String(), m.leaseOf("node3", false).String()
	far, far6 := m.leaseOf("node2", true).String(), m.leaseOf("node2", false).String()
	gw := m.nodes["node1"].Gateways
	m.all("node1",
		"ip route del "+far, "ip route del "+near, "ip -6 route del "+far6, "ip -6 route del "+near6,
		"ip route del unreachable "+own, "ip -6 route del unreachable "+own6)
	m.converged("routes were deleted")

	m.all("node1",
		"ip route replace "+far+" via "+gw[0].String()+" dev "+lab.UplinkName+" proto 119",
		"ip -6 route replace "+far6+" via "+gw[1].String()+" dev "+lab.UplinkName+" proto 119",
		"ip route replace "+near+" dev weft-vxlan via "+m.leaseOf("node2", true).Addr().Next().String()+" onlink proto 119",
		"ip -6 route replace blackhole "+near6+" proto 119",
		"ip route add 10.42.253.0/24 via "+gw[0].String()+" proto 119",
		"ip -6 route add unreachable fd00:42:0:fffe::/64 proto 119",
		"ip route add "+far+" via "+gw[0].String()+" proto 119 metric 5",
		"ip -6 route append "+near6+" via "+gw[1].String()+" dev "+lab.UplinkName+" proto 119",
		"ip route del local "+m.leaseOf("node1", true).Addr().Next().String()+" table local proto 119")
	m.converged("routes were replaced, and some added")
}

// flushedRoutes takes everything of ours away, that of pods too, as a network
// manager does that knows nobody else. Of pods' routes the agent is not told; it
// looks every 20 s.
func flushedRoutes(m *mesh) {
	m.all("node1", "ip route flush proto 119", "ip -6 route flush proto 119", "ip route flush table local proto 119")
	m.eventually("packets after all routes were flushed", 20*time.Second+bound, m.checkPairs)
	m.converged("all routes were flushed")
}

// foreignRoute puts routes of others in the place of ours while no agent runs.
func foreignRoute(m *mesh) {
	m.kill("node1")
	m.blocked(func() { m.restart("node1") })
}

// foreignRouteInstead replaces routes of ours while the agent runs: of the ones
// that were replaced, the kernel does not say that they are gone.
func foreignRouteInstead(m *mesh) {
	// A read that is due for another reason would see it by chance.
	m.eventually("node1 has not read its routes for a while", bound, func() error {
		rows, err := m.status("node1")
		for _, r := range rows {
			if r.Subsystem == "kernel routes" && !recentRead.MatchString(r.Detail) {
				return nil
			}
		}
		return fmt.Errorf("it says %v, %w", rows, err)
	})
	m.blocked(func() {})
}

// recentRead matches the detail of a kind that was read in the last 2 s.
var recentRead = regexp.MustCompile(`read [0-2]s ago`)

func (m *mesh) blocked(then func()) {
	m.Helper()
	far, near6 := m.leaseOf("node2", true).String(), m.leaseOf("node3", false).String()
	gw := m.nodes["node1"].Gateways
	m.all("node1",
		"ip route replace "+far+" via "+gw[0].String()+" dev "+lab.UplinkName+" proto static",
		"ip -6 route replace "+near6+" via "+gw[1].String()+" dev "+lab.UplinkName+" proto static")
	then()
	m.problem("node1", "kernel routes", far, "and 1 more", "proto 4")
	m.all("node1", "ip route del "+far+" proto static")
	m.problem("node1", "kernel routes", near6, "proto 4")
	m.all("node1", "ip -6 route del "+near6+" proto static")
	m.converged("foreign routes went")
}

// bounce kills an agent and starts it again.
func (m *mesh) bounce(node string) {
	m.Helper()
	m.kill(node)
	m.restart(node)
}
