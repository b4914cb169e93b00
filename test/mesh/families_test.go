// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"testing"

	"weft.dev/weft/internal/lab"
)

// TestFamilies runs nodes that speak one family only, natively and by VXLAN.
func TestFamilies(t *testing.T) {
	for _, f := range []lab.Family{lab.IPv4, lab.IPv6} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			m := up(t, lab.Spec{Name: "mesh" + string(f), Family: f, Nodes: 3, Segments: 2})
			m.converged("the start")

			m.kill("node1", "node2")
			m.deviceVanishes("node1", string(f))
			m.restart("node1", "node2")
			m.converged("agents were killed and a device was deleted")

			m.backend = "vxlan"
			m.configure(func(c map[string]any) { network(c)["backend"] = map[string]any{"type": "vxlan"} }, m.nodeNames()...)
			m.converged("backend vxlan")
			m.removeNode("node2")
			m.converged("a node was removed")

			if f == lab.IPv6 {
				// As a container runtime's bridge has one, on every node the same.
				for _, n := range m.nodeNames() {
					m.do(n, "ip", "address", "add", "192.0.2.77/32", "dev", "weftforeign")
				}
				m.converged("a foreign interface got an IPv4 address")
			}
		})
	}
}

// deviceVanishes deletes a node's VXLAN device.
func (m *mesh) deviceVanishes(node, underlay string) {
	m.Helper()
	device := "weft-vxlan"
	if underlay == string(lab.IPv6) {
		device = "weft-vxlan6"
	}
	m.do(node, "ip", "link", "delete", device)
}
