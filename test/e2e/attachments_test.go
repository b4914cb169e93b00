// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/test/cluster"
)

// attachment is a line of `weft pod list`.
type attachment struct {
	Pod         string
	Addresses   []netip.Addr
	Phase       string
	ContainerID string
	Netns       string // as the runtime calls it
}

// attachments are what a node's journal has.
func (s *suite) attachments(ctx context.Context, n *cluster.Node) ([]attachment, error) {
	var all []attachment
	return all, s.weftOn(ctx, n, &all, "pod", "list")
}

// attachmentOf is the pod's complete one on the node that it ran on, by its
// present sandbox.
func (s *suite) attachmentOf(ctx context.Context, n *cluster.Node, pod string) (attachment, error) {
	all, err := s.attachments(ctx, n)
	if err != nil {
		return attachment{}, err
	}
	for _, a := range all {
		if a.Pod == pod && a.Phase == "complete" {
			return a, nil
		}
	}
	return attachment{}, fmt.Errorf("pod %s has no complete attachment on %s", pod, n.Name)
}

// freed waits until a node's journal has nothing of these pods, and the kernel
// neither: their addresses are back.
func (s *suite) freed(t *testing.T, limit time.Duration, n *cluster.Node, pods ...*corev1.Pod) {
	t.Helper()
	await(t, limit, "the addresses to come back", func(ctx context.Context) error {
		all, err := s.attachments(ctx, n)
		if err != nil {
			return err
		}
		var errs []error
		for _, p := range pods {
			for _, a := range all {
				if a.Pod == p.Namespace+"/"+p.Name || slices.ContainsFunc(addressesOf(p), func(x netip.Addr) bool { return slices.Contains(a.Addresses, x) }) {
					errs = append(errs, fmt.Errorf("the journal has %+v", a))
				}
			}
			for _, address := range addressesOf(p) {
				route, err := n.Exec(ctx, "ip", "route", "show", "table", "all", "exact", netip.PrefixFrom(address, address.BitLen()).String())
				if err != nil || strings.TrimSpace(route) != "" {
					errs = append(errs, fmt.Errorf("the kernel has a route: %s%w", route, err))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// consistent waits until a node's journal, sandboxes and interfaces agree, and
// every attachment is one of a pod that the API has on the node.
func (s *suite) consistent(t *testing.T, limit time.Duration, n *cluster.Node) {
	t.Helper()
	await(t, limit, "journal and cluster to agree on "+n.Name, func(ctx context.Context) error {
		var problems []map[string]any
		if err := s.weftOn(ctx, n, &problems, "ipam", "check"); err != nil {
			return err
		}
		if len(problems) > 0 {
			return fmt.Errorf("weft ipam check: %v", problems)
		}
		return s.everyAttachmentHasItsPod(ctx, n)
	})
}

func (s *suite) everyAttachmentHasItsPod(ctx context.Context, n *cluster.Node) error {
	pods, err := s.podsOn(ctx, n.Name)
	if err != nil {
		return err
	}
	all, err := s.attachments(ctx, n)
	if err != nil {
		return err
	}
	for _, a := range all {
		p, there := pods[a.Pod]
		if !there || !slices.Equal(addressesOf(&p), a.Addresses) {
			return fmt.Errorf("attachment %+v is of no pod that the API has on %s with these addresses", a, n.Name)
		}
		delete(pods, a.Pod)
	}
	if len(pods) > 0 {
		return fmt.Errorf("%d pods on %s have no attachment", len(pods), n.Name)
	}
	return nil
}
