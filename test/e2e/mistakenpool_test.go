// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/wish"
)

// A pool in the nodes' own network gives nothing: the pod that asks for it is
// told what is wrong with the pool, no node leases of it, leases of it that there
// are go, and a pod that asks for another pool starts.
func testMistakenPool(t *testing.T, s *suite) {
	s.pool(t, "mistaken", map[string]any{"ipv4": map[string]any{"cidr": "198.18.0.0/24", "blockSize": int64(28)}})
	s.pool(t, "good", map[string]any{"ipv4": map[string]any{"cidr": "10.80.0.0/24", "blockSize": int64(28)}})
	for subnet, node := range map[string]string{
		"198.18.0.160/28": "node1", "198.18.0.176/28": "node1", "198.18.0.192/28": "node1", "198.18.0.208/28": "node1",
		"198.18.0.0/28": "node2", // with the address of both nodes
	} {
		l := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "weft.dev/v1alpha1", "kind": "SubnetLease",
			"metadata": map[string]any{"name": cluster.LeaseName(netip.MustParsePrefix(subnet))},
			"spec":     map[string]any{"subnet": subnet, "pool": "mistaken", "nodeName": node},
		}}
		if _, err := s.objects.Resource(resource("subnetleases")).Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ns := s.namespace(t)
	s.create(t, sleeper(ns, "lost", "node1", wish.Pool, "mistaken"))
	s.start(t, server(ns, "well", "node1", wish.Pool, "good"))
	await(t, starting, "the events of a pod that asks for a pool in the nodes' network", func(ctx context.Context) error {
		events := strings.Join(s.events(ctx, ns, "lost"), "\n")
		if want := "every block /28 in 198.18.0.0/24 overlaps this node's network 198.18.0.0/24 (eth0)"; !strings.Contains(events, want) {
			return fmt.Errorf("want %q, found\n%s", want, events)
		}
		t.Log(events)
		return nil
	})
	await(t, starting, "the end of the leases of the pool", func(context.Context) error {
		if out := s.kubectl(t, "get", "subnetleases", "-o", "name"); strings.Contains(out, "/198-18-") {
			return fmt.Errorf("there are\n%s", out)
		}
		return nil
	})
}
