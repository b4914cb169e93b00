// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"weft.dev/weft/internal/core/wish"
)

// pool creates an IPPool for pods that ask for it; it goes with the test.
func (s *suite) pool(t *testing.T, name string, ranges map[string]any) {
	t.Helper()
	spec := map[string]any{"onRequest": true}
	for family, r := range ranges {
		spec[family] = r
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "weft.dev/v1alpha1", "kind": "IPPool", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	if _, err := s.objects.Resource(resource("ippools")).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.objects.Resource(resource("ippools")).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// A pod that asks for a pool of one family has an address and a default route of
// that family, on nodes that have both. When the pool is full, the next pod waits
// and its events say which pool; the node stays Ready, because the pods on it are
// well.
func testSmallPools(t *testing.T, s *suite) {
	const range4, range6 = "10.44.0.0/30", "fd00:44::/120"
	s.pool(t, "four", map[string]any{"ipv4": map[string]any{"cidr": range4, "blockSize": int64(30)}})
	s.pool(t, "six", map[string]any{"ipv6": map[string]any{"cidr": range6, "blockSize": int64(120)}})
	ns := s.namespace(t)
	pods := s.start(t, server(ns, "four", "node1", wish.Pool, "four"), server(ns, "six", "node1", wish.Pool, "six"))
	for i, in := range []string{range4, range6} {
		if a := addressesOf(pods[i]); len(a) != 1 || !netip.MustParsePrefix(in).Contains(a[0]) {
			t.Errorf("pod %s has %v, want one of %s", pods[i].Name, a, in)
		}
	}
	s.create(t, sleeper(ns, "late", "node1", wish.Pool, "four"))
	await(t, starting, "the events of a pod that asks for a full pool", func(ctx context.Context) error {
		events := s.events(ctx, ns, "late")
		if !slices.ContainsFunc(events, func(e string) bool {
			return strings.HasPrefix(e, "AddressesExhausted: ") && strings.Contains(e, "IPPool four")
		}) {
			return fmt.Errorf("want AddressesExhausted with IPPool four, found\n%s", strings.Join(events, "\n"))
		}
		return nil
	})
	n, err := s.nodeNamed(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			t.Errorf("node1 is not Ready: %s", c.Message)
		}
	}
}

// An address that a pod has by chance does not become another's because somebody
// reserves it afterwards.
func testReservedTooLate(t *testing.T, s *suite) {
	ns := s.namespace(t)
	first := s.start(t, server(ns, "first", "node1"))[0]
	taken := addressesOf(first)[0]
	s.reserve(t, taken)
	s.create(t, sleeper(ns, "second", "node2", wish.IPv4, taken.String()))
	s.refused(t, ns, "second", wish.AddressInUse, ns+"/first")
	s.reached(t, s.start(t, server(ns, "third", "node2"))[0], first)
}

// reserve adds an address to what the pool "default" reserves, until the test
// ends.
func (s *suite) reserve(t *testing.T, a netip.Addr) {
	t.Helper()
	change := func(ctx context.Context, change func([]string) []string) error {
		pools := s.objects.Resource(resource("ippools"))
		return awaitErr(ctx, starting, "the change of IPPool default", func(ctx context.Context) error {
			p, err := pools.Get(ctx, "default", metav1.GetOptions{})
			if err != nil {
				return err
			}
			list, _, err := unstructured.NestedStringSlice(p.Object, "spec", "reserved")
			if err != nil {
				return err
			}
			if err := unstructured.SetNestedStringSlice(p.Object, change(list), "spec", "reserved"); err != nil {
				return err
			}
			_, err = pools.Update(ctx, p, metav1.UpdateOptions{})
			return err
		})
	}
	if err := change(t.Context(), func(l []string) []string { return append(l, a.String()) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := change(context.Background(), func(l []string) []string {
			return slices.DeleteFunc(l, func(r string) bool { return r == a.String() })
		})
		if err != nil {
			t.Error(err)
		}
	})
}
