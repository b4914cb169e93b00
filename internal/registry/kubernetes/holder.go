// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// pageSize is how many objects one answer has at most, where all are asked for.
const pageSize = 500

// PodWith implements registry.Pods. The first address of a pod can be selected
// by; for the second, all pods are gone through, a page at a time.
func (r *Registry) PodWith(ctx context.Context, a netip.Addr) (string, error) {
	holder, _, err := r.podsPage(ctx, a, "fieldSelector", "status.podIP="+a.String())
	if err != nil || holder != "" {
		return holder, err
	}
	for next := ""; ; {
		if holder, next, err = r.podsPage(ctx, a, "continue", next); err != nil || holder != "" || next == "" {
			return holder, err
		}
	}
}

func (r *Registry) podsPage(ctx context.Context, a netip.Addr, param, value string) (holder, next string, err error) {
	object, err := send(ctx, transient, func() *rest.Request {
		req := r.core.Get().Resource(pods).Param("limit", strconv.Itoa(pageSize))
		if value != "" {
			req = req.Param(param, value)
		}
		return req
	})
	if err != nil {
		return "", "", fmt.Errorf("look for the pod that has %s: %w", a, err)
	}
	list, ok := object.(*corev1.PodList)
	if !ok {
		return "", "", fmt.Errorf("look for the pod that has %s: the API server answers with a %T", a, object)
	}
	for i := range list.Items {
		p := &list.Items[i]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !ended && !p.Spec.HostNetwork && hasAddress(p, a) {
			return p.Namespace + "/" + p.Name, "", nil
		}
	}
	return "", list.Continue, nil
}

func hasAddress(p *corev1.Pod, a netip.Addr) bool {
	for _, ip := range p.Status.PodIPs {
		if had, err := netip.ParseAddr(ip.IP); err == nil && had == a {
			return true
		}
	}
	return false
}
