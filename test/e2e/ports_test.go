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
)

// withPort maps a port of the node to the pod's 8080.
func withPort(p *corev1.Pod, port int32) *corev1.Pod {
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{
			Name: strings.ToLower(string(protocol)), ContainerPort: 8080, HostPort: port, Protocol: protocol,
		})
	}
	return p
}

// A pod with a hostPort is reached by TCP and UDP at the node's addresses of both
// families, from the node itself, from another node and from pods; and on the
// node at 127.0.0.1. When the pod is gone, nothing answers there.
func testHostPorts(t *testing.T, s *suite) {
	ns := s.namespace(t)
	const port = 18080
	pods := s.start(t, withPort(server(ns, "web", "node1"), port), server(ns, "near", "node1"), server(ns, "far", "node2"))
	targets := append(slices.Clone(s.Nodes[0].Addresses), netip.MustParseAddr("127.0.0.1"))
	for _, address := range targets {
		target := netip.AddrPortFrom(address, port)
		for _, n := range s.Nodes[:2] {
			if address.IsLoopback() && n != s.Nodes[0] {
				continue
			}
			if err := answers("web")(askHTTP(t.Context(), n, target, "hostname")); err != nil {
				t.Error(err)
			}
			if err := answers("web")(askUDP(n, target, "hostname")); err != nil {
				t.Error(err)
			}
		}
		for _, from := range pods {
			if address.IsLoopback() {
				continue
			}
			for _, protocol := range []string{"http", "udp"} {
				if err := s.expect(t.Context(), from, protocol, address.String(), port, "hostname", "web"); err != nil {
					t.Error(err)
				}
			}
		}
	}
	s.remove(t, ns, "web")
	for _, address := range targets {
		if got, err := askHTTP(t.Context(), s.Nodes[0], netip.AddrPortFrom(address, port), "hostname"); err == nil {
			t.Errorf("%s answers %q after the pod is gone", address, got)
		}
	}
}

// Two pods cannot have one hostPort. The scheduler sees to that, but not where a
// pod's object was deleted by force while the pod still runs: then the second
// one's events name the pod that has the port, and it starts once that is gone.
func testHostPortConflict(t *testing.T, s *suite) {
	ns := s.namespace(t)
	const port = 18090
	holder := withPort(sleeper(ns, "holder", "node2"), port)
	grace := int64(20)
	holder.Spec.TerminationGracePeriodSeconds = &grace
	s.start(t, holder)
	second := withPort(server(ns, "second", ""), port)
	second.Spec.NodeName = "node2" // past the scheduler
	s.force(t, ns, "holder")
	s.create(t, second)
	s.ready(t, ns, "second", "")
	events := s.events(t.Context(), ns, "second")
	if !slices.ContainsFunc(events, func(e string) bool {
		return strings.HasPrefix(e, "FailedCreatePodSandBox") && strings.Contains(e, fmt.Sprint(port)) && strings.Contains(e, ns+"/holder")
	}) {
		t.Errorf("events of the second pod are\n%s\nwant one that names port %d and pod %s/holder", strings.Join(events, "\n"), port, ns)
	}
	for _, address := range s.Nodes[1].Addresses {
		target := netip.AddrPortFrom(address, port)
		await(t, 10*time.Second, "the port", func(ctx context.Context) error {
			return answers("second")(askHTTP(ctx, s.Nodes[0], target, "hostname"))
		})
	}
}
