// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/core/wish"
)

// Somebody drains a node (kubectl drain): the StatefulSet's pod comes up on
// another one with its addresses and is reached from everywhere, and likewise when
// that node is drained in turn. Deleted, it comes back on the same node with the
// same addresses.
func testDrain(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.statefulSet(t, ns)
	first := s.ready(t, ns, "db-0", "")
	kept := addressesOf(first)
	s.change(t, ns, `{"template":{"spec":{"nodeSelector":null}}}`)
	pod := s.ready(t, ns, "db-0", string(first.UID))
	clients := s.start(t, server(ns, "one", "node1"), server(ns, "two", "node2"))
	// returned waits for the next pod of the name and checks it.
	returned := func(to string) {
		t.Helper()
		pod = s.ready(t, ns, "db-0", string(pod.UID))
		if got := addressesOf(pod); !slices.Equal(got, kept) || pod.Spec.NodeName != to {
			t.Fatalf("the pod is on %s with %v, want %s and %v", pod.Spec.NodeName, got, to, kept)
		}
		s.reached(t, pod, clients...)
	}
	other := map[string]string{"node1": "node2", "node2": "node1"}
	t.Cleanup(func() {
		for node := range other {
			if out, err := s.Kubectl(context.Background(), "uncordon", node); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
	for range 2 {
		node := pod.Spec.NodeName
		s.kubectl(t, "drain", node, "--ignore-daemonsets", "--pod-selector=name=db", "--timeout=60s")
		returned(other[node])
		s.kubectl(t, "uncordon", node)
	}
	s.kubectl(t, "cordon", other[pod.Spec.NodeName]) // for the scheduler would take any
	s.kubectl(t, "-n", ns, "delete", "pod", "db-0", "--wait=false")
	returned(pod.Spec.NodeName)
}

// While a StatefulSet with weft.dev/sticky is scaled to 0, nobody else gets its
// pods' addresses: who asks for one is told whose it is. Scaled up again, the pods
// have them.
func testAway(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.statefulSet(t, ns)
	kept := addressesOf(s.ready(t, ns, "db-0", ""))
	s.change(t, ns, `{"replicas":0}`)
	await(t, starting, "the pod to go", func(ctx context.Context) error {
		if _, err := s.Client().CoreV1().Pods(ns).Get(ctx, "db-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	s.create(t, server(ns, "greedy", "node1", wish.IPv4, kept[0].String()))
	s.refused(t, ns, "greedy", wish.AddressInUse, "is kept by AddressClaim "+ns+"/db-0 for the pod of that name")
	s.change(t, ns, `{"replicas":1}`)
	if got := addressesOf(s.ready(t, ns, "db-0", "")); !slices.Equal(got, kept) {
		t.Errorf("the pod has %v, want %v", got, kept)
	}
}

// change changes the spec of the StatefulSet db.
func (s *suite) change(t *testing.T, ns, spec string) {
	t.Helper()
	_, err := s.Client().AppsV1().StatefulSets(ns).Patch(t.Context(), "db", types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
