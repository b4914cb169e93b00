// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"testing"

	"weft.dev/weft/internal/lab"
)

// TestManyJoinAtOnce starts two clusters' worth of agents on one registry at
// the same moment, twice: on an empty registry, and when all were killed and
// half of the leases are gone.
func TestManyJoinAtOnce(t *testing.T) {
	t.Parallel()
	const nodes = 24
	m := up(t, lab.Spec{Name: "meshmany", Nodes: nodes, Segments: 2})
	names := m.nodeNames()
	b, err := m.believe()
	m.must(err)
	m.must(b.whole(names, 2))
	m.converged(fmt.Sprintf("%d nodes joined at once", nodes))

	m.kill(names...)
	b, err = m.believe()
	m.must(err)
	for _, l := range b.leases[:len(b.leases)/2] {
		m.loseLease(l.Metadata.Name)
	}
	m.restart(names...)
	m.eventually("every node has leases again", bound, func() error {
		b, err := m.believe()
		if err != nil {
			return err
		}
		return b.whole(names, 2)
	})
	m.converged("all nodes joined again")
	for _, n := range names {
		m.holds(n, 2)
	}
}
