// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/core/wish"
)

// A pod can ask for an address in its node's own block, and no other pod gets it.
// Pods that cannot have what they ask for wait, with an event that says why; they
// start when their annotations are corrected, and nobody has to delete them. When
// the pod is gone, another one can have its address.
func testMended(t *testing.T, s *suite) {
	ns := s.namespace(t)
	blocks := s.blocks(t, "node1")
	want := []netip.Addr{nth(blocks[0], 60), nth(blocks[1], 0xff00)}
	asked := []string{wish.IPv4, want[0].String(), wish.IPv6, want[1].String()}
	own := s.start(t, server(ns, "own", "node1", asked...))[0]
	if got := addressesOf(own); !slices.Equal(got, want) {
		t.Fatalf("the pod has %v, want %v", got, want)
	}
	s.poolFor(t, "second-node", "node2")

	free := s.freeBlock(t)
	spare := nth(blocks[0], 59).String()
	waiting := []struct{ name, node, annotation, value, mended, reason, text string }{
		{"near", "node1", wish.IPv4, asked[1], spare, wish.AddressInUse, ns + "/own"},
		{"far", "node2", wish.IPv6, asked[3], "", wish.AddressOnOtherNode, fmt.Sprintf("is in block %s of node node1", blocks[1])},
		{"gateway", "node1", wish.IPv4, nth(blocks[0], 1).String(), "", wish.AddressUnusable, fmt.Sprintf("broadcast address of block %s", blocks[0])},
		{"unleased", "node2", wish.IPv4, nth(free, 9).String(), "", wish.AddressNotReserved, "is in no node's block, and not reserved; let IPPool default reserve it"},
		{"selected", "node1", wish.Pool, "second-node", "default", wish.PoolNotForNode, "IPPool second-node does not select node node1"},
	}
	for _, w := range waiting {
		s.create(t, server(ns, w.name, w.node, w.annotation, w.value))
	}
	for _, w := range waiting {
		s.refused(t, ns, w.name, w.reason, w.text)
		s.annotate(t, ns, w.name, w.annotation, w.mended)
	}
	for _, w := range waiting {
		p := s.ready(t, ns, w.name, "")
		if w.mended == spare && addressesOf(p)[0].String() != spare {
			t.Errorf("pod %s has %v, want %s", w.name, addressesOf(p), spare)
		}
	}

	s.remove(t, ns, "own")
	next := s.start(t, server(ns, "next", "node1", asked...))[0]
	if got := addressesOf(next); !slices.Equal(got, want) {
		t.Errorf("the next pod has %v, want %v", got, want)
	}
	far := s.ready(t, ns, "far", "")
	s.reached(t, next, far)
}

// refused waits for events of a pod with the reason and the text, of Weft and of
// the kubelet, and checks that the pod waits.
func (s *suite) refused(t *testing.T, ns, pod, reason, text string) {
	t.Helper()
	await(t, starting, "events of pod "+pod, func(ctx context.Context) error {
		events := s.events(ctx, ns, pod)
		for _, source := range []string{reason, "FailedCreatePodSandBox"} {
			if !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, source+": ") && strings.Contains(e, text) }) {
				return fmt.Errorf("want %s with %q, found\n%s", source, text, strings.Join(events, "\n"))
			}
		}
		return nil
	})
	p, err := s.Client().CoreV1().Pods(ns).Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil || p.Status.Phase != corev1.PodPending {
		t.Errorf("pod %s: %v, %v, want Pending", pod, p.Status.Phase, err)
	}
}

// annotate sets an annotation of a pod; to "" takes it away.
func (s *suite) annotate(t *testing.T, ns, pod, annotation, value string) {
	t.Helper()
	var to any
	if value != "" {
		to = value
	}
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: to}}})
	if err == nil {
		_, err = s.Client().CoreV1().Pods(ns).Patch(t.Context(), pod, types.MergePatchType, change, metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// blocks are a node's of the suite's pool, IPv4 first.
func (s *suite) blocks(t *testing.T, node string) []netip.Prefix {
	t.Helper()
	found := make([]netip.Prefix, 2)
	for subnet, holder := range s.leased(t) {
		if holder != node || subnet.IsSingleIP() {
			continue
		}
		for f, pool := range []string{pool4, pool6} {
			if netip.MustParsePrefix(pool).Contains(subnet.Addr()) {
				found[f] = subnet
			}
		}
	}
	if !found[0].IsValid() || !found[1].IsValid() {
		t.Fatalf("%s has leases of %v of the pool, want one of each family", node, found)
	}
	return found
}

// freeBlock is one of the pool's IPv4 blocks that no node has, as far from those
// that nodes take next as can be.
func (s *suite) freeBlock(t *testing.T) netip.Prefix {
	t.Helper()
	leased := s.leased(t)
	for third := 254; third >= 0; third-- {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, byte(third), 0}), 26)
		if _, taken := leased[block]; !taken {
			return block
		}
	}
	t.Fatal("every block is leased")
	return netip.Prefix{}
}

// leased are all leases' subnets and nodes.
func (s *suite) leased(t *testing.T) map[netip.Prefix]string {
	t.Helper()
	all, err := s.leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	subnets := map[netip.Prefix]string{}
	for _, l := range all {
		subnets[netip.MustParsePrefix(l.subnet)] = l.node
	}
	return subnets
}

// nth is an address of a block.
func nth(block netip.Prefix, n int) netip.Addr {
	raw := block.Addr().AsSlice()
	raw[len(raw)-1] += byte(n)
	raw[len(raw)-2] += byte(n >> 8)
	a, _ := netip.AddrFromSlice(raw)
	return a
}

// poolFor makes a pool of which one node may lease, for those who ask.
func (s *suite) poolFor(t *testing.T, name, node string) {
	t.Helper()
	pools := s.objects.Resource(resource("ippools"))
	_, err := pools.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "weft.dev/v1alpha1", "kind": "IPPool", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"onRequest":    true,
			"ipv4":         map[string]any{"cidr": "10.44.0.0/24", "blockSize": int64(28)},
			"ipv6":         map[string]any{"cidr": "fd00:44::/56", "blockSize": int64(64)},
			"nodeSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelHostname: node}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pools.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
