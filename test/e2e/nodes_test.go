// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/test/cluster"
)

// settled: weft status says that all is well on the node.
func (s *suite) settled(ctx context.Context, n *cluster.Node) error {
	var rows []report.Subsystem
	if err := s.weftOn(ctx, n, &rows, "status"); err != nil {
		return err
	}
	for _, r := range rows {
		if !r.Settled() {
			return fmt.Errorf("%s on %s is %s: %s", r.Subsystem, n.Name, r.State, r.Detail)
		}
	}
	return nil
}

// A node dies for good. A pod of it with sticky addresses, deleted by force,
// starts on another node and is reached there. When the Node object is deleted,
// the leases of the node go, and the other nodes forget the way to it; a new node
// takes blocks of its own, and its pods are reached from everywhere.
func testReplacement(t *testing.T, s *suite) {
	ns := s.namespace(t)
	client := s.start(t, server(ns, "client", "node1"))[0]
	use := func(node string) {
		t.Helper()
		p := s.start(t, server(ns, "on-"+node, node))[0]
		s.reached(t, p, client)
	}
	third, err := s.AddNode(t.Context(), "node3")
	if err != nil {
		t.Fatal(err)
	}
	use(third.Name)
	leases, err := s.leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	subnets := map[string]bool{}
	for _, l := range leases {
		if l.node == third.Name {
			subnets[l.subnet] = true
		}
	}
	if len(subnets) != 2 {
		t.Fatalf("%s has leases of %v, want one of each family", third.Name, subnets)
	}
	s.dies(t, ns, third, client)
	if err := s.RemoveNode(t.Context(), third.Name); err != nil {
		t.Fatal(err)
	}
	await(t, 60*time.Second, "the leases of "+third.Name+" to go", func(ctx context.Context) error {
		leases, err := s.leases(ctx)
		for _, l := range leases {
			if l.node == third.Name {
				return fmt.Errorf("SubnetLease %s is there", l.name)
			}
		}
		return err
	})
	for _, n := range s.Nodes {
		await(t, 20*time.Second, "the routes to "+third.Name+" to go", func(ctx context.Context) error {
			for subnet := range subnets {
				route, err := n.Exec(ctx, "ip", "route", "show", "table", "all", "exact", netip.MustParsePrefix(subnet).String())
				if err != nil || strings.TrimSpace(route) != "" {
					return fmt.Errorf("%s has %s%w", n.Name, route, err)
				}
			}
			return nil
		})
	}
	fourth, err := s.AddNode(t.Context(), "node4")
	if err != nil {
		t.Fatal(err)
	}
	use(fourth.Name)
	for _, n := range s.Nodes {
		await(t, 30*time.Second, n.Name, func(ctx context.Context) error { return s.settled(ctx, n) })
	}
}

// dies has the kubelet of a node die while a sticky pod of node1's addresses is
// there, and checks that node2 takes over pod and addresses.
func (s *suite) dies(t *testing.T, ns string, n *cluster.Node, client *corev1.Pod) {
	t.Helper()
	s.statefulSet(t, ns)
	pod := s.ready(t, ns, "db-0", "")
	kept := addressesOf(pod)
	s.selectNode(t, ns, n.Name)
	pod = s.ready(t, ns, "db-0", string(pod.UID))
	if err := n.Kill("kubelet"); err != nil {
		t.Fatal(err)
	}
	s.selectNode(t, ns, "node2")
	s.force(t, ns, "db-0")
	pod = s.ready(t, ns, "db-0", string(pod.UID))
	if got := addressesOf(pod); pod.Spec.NodeName != "node2" || !slices.Equal(got, kept) {
		t.Fatalf("the pod is on %s with %v, want node2 and %v", pod.Spec.NodeName, got, kept)
	}
	for f, address := range kept {
		await(t, 20*time.Second, "the pod on its new node", func(ctx context.Context) error {
			return s.seesSource(ctx, client, address, addressesOf(client)[f])
		})
	}
}
