// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"strings"
	"testing"

	"weft.dev/weft/internal/lab"
)

// TestExhaustion has two nodes share a pool of four blocks with five addresses
// for pods each.
func TestExhaustion(t *testing.T) {
	t.Parallel()
	m := up(t, lab.Spec{Name: "meshtiny", Family: lab.IPv4, Nodes: 2, Segments: 2})
	m.kill("node1", "node2")
	m.configure(func(c map[string]any) {
		c["cluster"].(map[string]any)["leaseIdleAfter"] = "2s"
		network(c)["cooldown"] = "0s"
	}, "node1", "node2")
	// The pool is another one, and the blocks of the old one go with their pods.
	m.write(m.path("registry", "pool.yaml"), poolText("default", 25, "ipv4: {cidr: 10.77.0.0/27, blockSize: 29}"))
	m.restart("node1", "node2")
	m.holds("node1", 2)
	m.deletePod("p1")
	m.deletePod("p2")
	m.holds("node1", 1)
	m.holds("node2", 1)
	m.addPod("p1", "node1")
	m.addPod("p2", "node2")
	m.converged("the pool was replaced by a tiny one")

	// p1 is one of fifteen; the node takes blocks before it has to.
	for i := range 14 {
		m.addPod(fmt.Sprintf("q%d", i), "node1")
	}
	m.holds("node1", 3)
	m.holds("node2", 1)
	m.problem("node1", "leases", "none is free", "default")
	_, err := m.host.AddPod(m.Context(), m.name, podSpec("toomuch", "node1"))
	if err == nil || !strings.Contains(err.Error(), "no free address in 10.77.0.") || !strings.Contains(err.Error(), "15 of 15 used") {
		m.Errorf("one pod too many: %v; want an error that says that all addresses are used", err)
	}
	if rows, err := m.status("node1"); err != nil || !strings.Contains(fmt.Sprint(rows), "exhausted: no pod can start") {
		m.Errorf("weft status: %v, %v; want it to say that no pod can start", rows, err)
	}
	m.eventually("kernels with all blocks in use", bound, m.checkKernels)
	m.eventually("packets with all blocks in use", bound, m.checkPairs)

	for i := range 14 {
		m.deletePod(fmt.Sprintf("q%d", i))
	}
	m.holds("node1", 1)
	m.converged("the blocks were given back")
	for i := range 6 { // with p2 seven of ten: neither too few for a second block nor so many that a third is due
		m.addPod(fmt.Sprintf("r%d", i), "node2")
	}
	m.holds("node2", 2)
	m.converged("the other node took one")
}

// holds waits until a node holds that many leases.
func (m *mesh) holds(node string, leases int) {
	m.Helper()
	m.eventually(fmt.Sprintf("%s holds %d leases", node, leases), bound, func() error {
		b, err := m.believe()
		if has := b.leasesOf(node); err == nil && len(has) != leases {
			err = fmt.Errorf("it holds %d: %v", len(has), has)
		}
		return err
	})
}
