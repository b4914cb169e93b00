// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/test/cluster"
)

// Somebody deletes a StatefulSet's pod by force, as one does with a pod that
// hangs. The next one, which is made at once, has the pod's addresses as soon as
// the last one's containers have ended, without an attempt that fails.
func testStickyForced(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.statefulSet(t, ns)
	last := s.ready(t, ns, "db-0", "")
	start := time.Now()
	s.kubectl(t, "-n", ns, "delete", "pod", "db-0", "--grace-period=0", "--force")
	next := s.ready(t, ns, "db-0", string(last.UID))
	t.Logf("the next pod is Ready %s after the last one was deleted", time.Since(start).Round(10*time.Millisecond))
	if got, want := addressesOf(next), addressesOf(last); !slices.Equal(got, want) {
		t.Errorf("the next pod has %v, want %v", got, want)
	}
	events, err := s.Client().CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(next.UID) + ",reason=FailedCreatePodSandBox",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		t.Errorf("the next pod's events have %s", e.Message)
	}
}

// A pod runs away from the block of its address, and its interface is gone, as it
// is between the end of a sandbox and the start of the next. Who sends to the
// address is told at once that nobody has it: the packet does not go to and fro
// between the block's node and the pod's until its hop limit ends.
func testNobody(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.statefulSet(t, ns)
	pod := s.ready(t, ns, "db-0", "")
	s.selectNode(t, ns, "node2")
	pod = s.ready(t, ns, "db-0", string(pod.UID))
	s.reached(t, pod, s.start(t, server(ns, "client", "node1"))...)
	holder := s.host(pod)
	route, err := holder.Exec(t.Context(), "ip", "-o", "route", "get", addressesOf(pod)[0].String())
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(route)
	if _, err := holder.Exec(t.Context(), "ip", "link", "delete", fields[slices.Index(fields, "dev")+1]); err != nil {
		t.Fatal(err)
	}
	for _, address := range addressesOf(pod) {
		for _, from := range s.Nodes[:2] {
			start := time.Now()
			said, err := from.Exec(t.Context(), "ping", "-n", "-c", "1", "-W", "5", address.String())
			took := time.Since(start).Round(time.Millisecond)
			t.Logf("%s from %s: %s", address, from.Name, took)
			// The pod's node refuses to send by itself.
			answer := fmt.Sprint(said, err)
			if !strings.Contains(answer, "nreachable") && !strings.Contains(answer, "No route to host") || took > 3*time.Second {
				t.Errorf("who sends to %s from %s hears after %s\n%s\nwant that it is unreachable, at once", address, from.Name, took, answer)
			} else if from != holder && !s.saidBy(t, said, holder) {
				t.Errorf("who sends to %s from %s hears\n%s\nwant it from %s", address, from.Name, said, holder.Name)
			}
		}
	}
}

// saidBy: what ping reports comes from an address of the node, or of its blocks.
func (s *suite) saidBy(t *testing.T, said string, n *cluster.Node) bool {
	t.Helper()
	m := regexp.MustCompile(`From (\S+) icmp_seq`).FindStringSubmatch(said)
	if m == nil {
		return false
	}
	from, err := netip.ParseAddr(m[1])
	if err != nil {
		return false
	}
	if slices.Contains(n.Addresses, from) {
		return true
	}
	for subnet, holder := range s.leased(t) {
		if holder == n.Name && subnet.Contains(from) {
			return true
		}
	}
	return false
}
