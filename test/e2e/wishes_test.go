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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"weft.dev/weft/internal/core/wish"
)

// resource is one of Weft's kinds.
func resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "weft.dev", Version: "v1alpha1", Resource: plural}
}

// A pod that asks for addresses, a MAC address and an MTU has them, and is
// reached there from every node.
func testFixed(t *testing.T, s *suite) {
	ns := s.namespace(t)
	const ipv4, ipv6, mac = "10.42.255.7", "fd00:42:0:ffff::7", "02:01:02:03:04:07"
	fixed := server(ns, "fixed", "node1", wish.IPv4, ipv4, wish.IPv6, ipv6, wish.MAC, mac, wish.MTU, "1400")
	fixed.Spec.Containers = append(fixed.Spec.Containers, sleeper(ns, "", "").Spec.Containers[0])
	fixed.Spec.Containers[1].Name = "shell"
	pods := s.start(t, fixed, server(ns, "near", "node1"), server(ns, "far", "node2"))
	want := []netip.Addr{netip.MustParseAddr(ipv4), netip.MustParseAddr(ipv6)}
	if got := addressesOf(pods[0]); !slices.Equal(got, want) {
		t.Fatalf("the pod has %v, want %v", got, want)
	}
	link := s.kubectl(t, "-n", ns, "exec", "fixed", "-c", "shell", "--", "ip", "link", "show", "eth0")
	if !strings.Contains(link, "mtu 1400") || !strings.Contains(link, mac) {
		t.Errorf("eth0 of the pod is\n%s\nwant mtu 1400 and the MAC %s", link, mac)
	}
	s.reached(t, pods[0], pods[1:]...)
}

// reached checks that the nodes and those pods reach a server pod at its
// addresses, and that it sees the pods' own.
func (s *suite) reached(t *testing.T, to *corev1.Pod, from ...*corev1.Pod) {
	t.Helper()
	for f, address := range addressesOf(to) {
		for _, p := range from {
			// Nodes learn of single addresses a moment after the pod is there.
			await(t, 20*time.Second, fmt.Sprintf("%s at %s", to.Name, address), func(ctx context.Context) error {
				return s.seesSource(ctx, p, address, addressesOf(p)[f])
			})
			if err := s.seesSource(t.Context(), to, addressesOf(p)[f], address); err != nil {
				t.Error(err)
			}
		}
		for _, n := range s.Nodes {
			await(t, 20*time.Second, fmt.Sprintf("%s at %s", to.Name, address), func(ctx context.Context) error {
				return answers(to.Name)(askHTTP(ctx, n, netip.AddrPortFrom(address, 8080), "hostname"))
			})
		}
	}
}

// Pods that ask for a pool, by their own or their namespace's annotation, have
// addresses of it; nobody else has.
func testPools(t *testing.T, s *suite) {
	const range4, range6 = "10.43.0.0/24", "fd00:43::/56"
	pool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "weft.dev/v1alpha1", "kind": "IPPool", "metadata": map[string]any{"name": "requested"},
		"spec": map[string]any{
			"onRequest": true,
			"ipv4":      map[string]any{"cidr": range4, "blockSize": int64(28)},
			"ipv6":      map[string]any{"cidr": range6, "blockSize": int64(64)},
		},
	}}
	if _, err := s.objects.Resource(resource("ippools")).Create(t.Context(), pool, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.objects.Resource(resource("ippools")).Delete(context.Background(), "requested", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	ns, whole := s.namespace(t), s.namespace(t, wish.Pool, "requested")
	pods := s.start(t, server(ns, "asks", "node1", wish.Pool, "requested"), server(whole, "inherits", "node2"), server(ns, "ordinary", "node1"))
	for i, p := range pods {
		a := addressesOf(p)
		asked := len(a) == 2 && netip.MustParsePrefix(range4).Contains(a[0]) && netip.MustParsePrefix(range6).Contains(a[1])
		if asked != (i < 2) {
			t.Errorf("pod %s has %v; %s and %s are for those who ask", p.Name, a, range4, range6)
		}
	}
	s.reached(t, pods[0], pods[1:]...)
}

// A pod whose annotation cannot be followed does not start, and its events say
// which annotation, what is wrong with it, and what to do.
func testRefusals(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.start(t, sleeper(ns, "holder", "node1", wish.IPv4, "10.42.255.30"))
	refused := []struct{ name, annotation, value, reason, text string }{
		{"address", wish.IPv4, "10.42.300.1", wish.InvalidAnnotation, "want an IPv4 address such as"},
		{"misspelt", "weft.dev/ip4", "10.42.255.31", wish.InvalidAnnotation, "there is no such annotation; there are weft.dev/ipv4"},
		{"mac", wish.MAC, "03:00:00:00:00:01", wish.InvalidAnnotation, "want a unicast EUI-48 address"},
		{"mtu", wish.MTU, "9000", wish.InvalidAnnotation, "this node's network takes"},
		{"pool", wish.Pool, "nowhere", wish.UnknownPool, "there is no IPPool nowhere in use"},
		{"outside", wish.IPv4, "192.0.2.9", wish.AddressOutsidePools, "192.0.2.9"},
		{"taken", wish.IPv4, "10.42.255.30", wish.AddressInUse, ns + "/holder"},
		{"bare", wish.Sticky, "true", wish.StickyWithoutController, "has no controller, such as a StatefulSet"},
	}
	for _, r := range refused {
		s.create(t, sleeper(ns, r.name, "node2", r.annotation, r.value))
	}
	for _, r := range refused {
		await(t, starting, "events of pod "+r.name, func(ctx context.Context) error {
			events := s.events(ctx, ns, r.name)
			says := func(reason string) bool {
				return slices.ContainsFunc(events, func(e string) bool {
					return strings.HasPrefix(e, reason+": ") && strings.Contains(e, r.text)
				})
			}
			if !says(r.reason) || !says("FailedCreatePodSandBox") {
				return fmt.Errorf("want %s and FailedCreatePodSandBox with %q, found\n%s", r.reason, r.text, strings.Join(events, "\n"))
			}
			return nil
		})
		p, err := s.Client().CoreV1().Pods(ns).Get(t.Context(), r.name, metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodPending {
			t.Errorf("pod %s: %v, %v, want Pending", r.name, p.Status.Phase, err)
		}
	}
	// The kubelet tries again and again; that is one event with a count.
	await(t, 2*starting, "a second attempt", func(ctx context.Context) error {
		list, err := s.Client().CoreV1().Events(ns).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=misspelt,reason=" + wish.InvalidAnnotation,
		})
		if err == nil && (len(list.Items) != 1 || list.Items[0].Count < 2) {
			err = fmt.Errorf("found %d events, want one with a count of at least 2", len(list.Items))
		}
		return err
	})
}
