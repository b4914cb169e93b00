// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"strings"
	"testing"
)

// TestRivalIsForgotten: a lease that comes back between two calls of Updates is
// judged anew, although a view was taken in the meantime.
func TestRivalIsForgotten(t *testing.T) {
	w, m, held := newWorld(), NewMap(), newObjects()
	older := "lease 10.42.4.0/23 node3 at=198.18.1.13 created=1"
	for _, command := range []string{node1, everybody, older, lease2 + near + " created=2"} {
		w.run(t, m, command)
	}
	if _, err := fold(held, m.Updates()); err != nil {
		t.Fatal(err)
	}
	w.run(t, m, "drop 10.42.5.0/24")
	w.run(t, m, "drop 10.42.4.0/23")
	if reach := m.Reach(); len(reach) > 0 {
		t.Fatalf("reach %v, want none", reach)
	}
	w.run(t, m, lease2+near+" created=2")
	if _, err := fold(held, m.Updates()); err != nil {
		t.Fatal(err)
	}
	if err := w.check(m, held); err != nil {
		t.Fatal(err)
	}
}

// TestWorkFollowsTheChange: what is said again is no work, and what is said in
// several parts is work once.
func TestWorkFollowsTheChange(t *testing.T) {
	w, m := newWorld(), NewMap()
	own := "lease 10.42.3.0/24 node1 at=198.18.1.11"
	for _, command := range []string{node1, everybody, own, lease2 + far} {
		w.run(t, m, command)
	}
	m.Updates()
	for _, command := range []string{node1, everybody, own, lease2 + far, "drop 10.42.9.0/24", "forget node9"} {
		w.run(t, m, command)
		if len(m.changed)+len(m.changedMembers) > 0 || m.contested || m.ownStale {
			t.Fatalf("%q, said again, is work", command)
		}
	}
	for _, command := range []string{lease2 + near, lease2 + far, "forget node2", "node node2", "drop 10.42.5.0/24", lease2 + near} {
		w.run(t, m, command)
	}
	if len(m.changed) != 1 || len(m.changedMembers) != 1 || m.changed[0].subnet != netip.MustParsePrefix("10.42.5.0/24") {
		t.Fatalf("%d leases and %d members to judge, want one each", len(m.changed), len(m.changedMembers))
	}
}

// TestConflictIsForgotten: a change is judged by itself again once nothing
// conflicts any more, and not before.
func TestConflictIsForgotten(t *testing.T) {
	for _, garbage := range []string{
		"lease 10.42.4.0/23 node3 at=198.18.1.13 created=1",  // overlaps
		"lease 198.18.2.0/24 node3 at=198.18.1.13 created=1", // contains a node address
		"lease 10.42.6.0/24 node3 at=10.42.5.7 created=1",    // has a node address in another lease
	} {
		w, m := newWorld(), NewMap()
		for _, command := range []string{node1, everybody, lease2 + far, garbage} {
			w.run(t, m, command)
		}
		m.Updates()
		w.run(t, m, "lease 10.42.9.0/24 node2"+far)
		if !m.contested {
			t.Errorf("%q: the leases are not compared again after a change", garbage)
		}
		w.run(t, m, "drop "+strings.Fields(garbage)[1])
		m.Updates()
		w.run(t, m, "lease 10.42.8.0/24 node2"+far)
		if m.contested || m.disputed {
			t.Errorf("%q: gone, but the leases are compared again", garbage)
		}
	}
}
