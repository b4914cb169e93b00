// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/core/wish"
)

// The pod of a StatefulSet with weft.dev/sticky keeps its addresses when it moves
// to another node and back, and is reached there from everywhere. When the
// StatefulSet is deleted, others can have the addresses.
func testSticky(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.statefulSet(t, ns)
	pod := s.ready(t, ns, "db-0", "")
	clients := s.start(t, server(ns, "one", "node1"), server(ns, "two", "node2"))
	kept := addressesOf(pod)
	if len(kept) != 2 {
		t.Fatalf("the pod has %v, want two addresses", kept)
	}
	for _, node := range []string{"node2", "node1"} {
		s.selectNode(t, ns, node)
		pod = s.ready(t, ns, "db-0", string(pod.UID))
		if got := addressesOf(pod); pod.Spec.NodeName != node || !slices.Equal(got, kept) {
			t.Fatalf("the pod is on %s with %v, want %s and %v", pod.Spec.NodeName, got, node, kept)
		}
		s.reached(t, pod, clients...)
	}

	claims := s.objects.Resource(resource("addressclaims")).Namespace(ns)
	if _, err := claims.Get(t.Context(), "db-0", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if err := s.Client().AppsV1().StatefulSets(ns).Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, 60*time.Second, "the claim to go", func(ctx context.Context) error {
		_, err := claims.Get(ctx, "db-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return s.noLeaseOf(ctx, ns+"/db-0")
		}
		return errors.Join(errors.New("it is there"), err)
	})
	next := s.start(t, sleeper(ns, "next", "node1", wish.IPv4, kept[0].String(), wish.IPv6, kept[1].String()))[0]
	if got := addressesOf(next); !slices.Equal(got, kept) {
		t.Errorf("the next pod has %v, want %v", got, kept)
	}
}

// noLeaseOf: there is no lease of a single address for the pod.
func (s *suite) noLeaseOf(ctx context.Context, pod string) error {
	leases, err := s.leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if l.pod == pod {
			return fmt.Errorf("SubnetLease %s is there", l.name)
		}
	}
	return nil
}

// selectNode has the pod of the StatefulSet run on another node.
func (s *suite) selectNode(t *testing.T, ns, node string) {
	t.Helper()
	change := `{"spec":{"template":{"spec":{"nodeSelector":{"` + corev1.LabelHostname + `":"` + node + `"}}}}}`
	_, err := s.Client().AppsV1().StatefulSets(ns).Patch(t.Context(), "db", types.StrategicMergePatchType, []byte(change), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// statefulSet makes the StatefulSet db with one pod, on node1.
func (s *suite) statefulSet(t *testing.T, ns string) {
	t.Helper()
	template := server(ns, "db", "node1", wish.Sticky, "true")
	replicas := int32(1)
	_, err := s.Client().AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// lease is what a SubnetLease says.
type lease struct{ name, subnet, node, pod string }

func (s *suite) leases(ctx context.Context) ([]lease, error) {
	list, err := s.objects.Resource(resource("subnetleases")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []lease
	for _, item := range list.Items {
		spec, _ := item.Object["spec"].(map[string]any)
		text := func(key string) string { v, _ := spec[key].(string); return v }
		all = append(all, lease{item.GetName(), text("subnet"), text("nodeName"), text("pod")})
	}
	slices.SortFunc(all, func(a, b lease) int { return strings.Compare(a.name, b.name) })
	return all, nil
}
