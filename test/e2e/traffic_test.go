// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Every pod has an address of each family. Pods reach each other on the same
// node and on another one, by TCP and UDP, from the first moment, and the server
// sees the client's own address.
func testPodTraffic(t *testing.T, s *suite) {
	ns := s.namespace(t)
	pods := s.start(t, server(ns, "a", "node1"), server(ns, "b", "node1"), server(ns, "c", "node2"))
	for _, p := range pods {
		if a := addressesOf(p); len(a) != 2 || !netip.MustParsePrefix(pool4).Contains(a[0]) || !netip.MustParsePrefix(pool6).Contains(a[1]) {
			t.Fatalf("pod %s has %v, want an address of %s and one of %s", p.Name, a, pool4, pool6)
		}
	}
	for _, from := range pods {
		for _, to := range pods {
			for f, address := range addressesOf(to) {
				if err := s.seesSource(t.Context(), from, address, addressesOf(from)[f]); err != nil && from != to {
					t.Error(err)
				}
				if err := s.expect(t.Context(), from, "udp", address.String(), 8080, "hostname", to.Name); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// A node reaches the pods of every node, as probes and operators do, and the
// pod sees the node's address. A pod reaches every node, its own and others.
func testNodeTraffic(t *testing.T, s *suite) {
	ns := s.namespace(t)
	onHost := server(ns, "host", "node2")
	onHost.Spec.HostNetwork = true
	onHost.Spec.Containers[0].Command = []string{"/agnhost", "netexec", "--http-port=8081", "--udp-port=8081"}
	onHost.Spec.Containers[0].ReadinessProbe = nil
	pods := s.start(t, server(ns, "a", "node1"), server(ns, "b", "node2"), onHost)
	for _, n := range s.Nodes[:2] {
		for _, to := range pods[:2] {
			for f, address := range addressesOf(to) {
				got, err := askHTTP(t.Context(), n, netip.AddrPortFrom(address, 8080), "clientip")
				if err != nil {
					t.Error(err)
					continue
				}
				seen, err := netip.ParseAddrPort(got)
				other := s.host(to) != n
				if err != nil || other && seen.Addr().Unmap() != n.Addresses[f] {
					t.Errorf("pod %s sees %s as %s, %v, want %s", to.Name, n.Name, got, err, n.Addresses[f])
				}
			}
		}
	}
	for _, from := range pods[:2] {
		for _, address := range s.Nodes[1].Addresses {
			await(t, 20*time.Second, "the server on the node", func(ctx context.Context) error {
				return s.expect(ctx, from, "http", address.String(), 8081, "hostname", "node2")
			})
		}
	}
}

// service makes a Service of both families, with port 80, for that port of the
// pods with the label.
func (s *suite) service(t *testing.T, namespace, name string, kind corev1.ServiceType, port int32) *corev1.Service {
	t.Helper()
	both := corev1.IPFamilyPolicyRequireDualStack
	service, err := s.Client().CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: kind, Selector: map[string]string{"name": name}, IPFamilyPolicy: &both,
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(port)},
				{Name: "udp", Port: 80, TargetPort: intstr.FromInt32(port), Protocol: corev1.ProtocolUDP},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// A Service is reached at its cluster addresses, from pods on the server's node
// and on the other one, and from the server itself; and at its node port on every
// node, from pods and from nodes.
func testServices(t *testing.T, s *suite) {
	ns := s.namespace(t)
	service := s.service(t, ns, "web", corev1.ServiceTypeNodePort, 8080)
	pods := s.start(t, server(ns, "web", "node1"), server(ns, "near", "node1"), server(ns, "far", "node2"))
	for _, from := range pods {
		for _, address := range service.Spec.ClusterIPs {
			for _, protocol := range []string{"http", "udp"} {
				await(t, 30*time.Second, fmt.Sprintf("%s from %s to Service %s", protocol, from.Name, address), func(ctx context.Context) error {
					return s.expect(ctx, from, protocol, address, 80, "hostname", "web")
				})
			}
		}
	}
	port := service.Spec.Ports[0].NodePort
	for _, n := range s.Nodes[:2] {
		for _, to := range s.Nodes[:2] {
			for _, address := range to.Addresses {
				target := netip.AddrPortFrom(address, uint16(port))
				await(t, 30*time.Second, fmt.Sprintf("the node port at %s, from %s", target, n.Name), func(ctx context.Context) error {
					return answers("web")(askHTTP(ctx, n, target, "hostname"))
				})
			}
		}
	}
	for _, address := range s.Nodes[1].Addresses {
		if err := s.expect(t.Context(), pods[1], "http", address.String(), int(port), "hostname", "web"); err != nil {
			t.Error(err)
		}
	}
}

// A pod finds a Service by its name, short and full, through the cluster's DNS,
// whichever node DNS is on.
func testNames(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.service(t, ns, "web", corev1.ServiceTypeClusterIP, 8080)
	behind := server(ns, "behind", "node1") // a pod knows its own name by a file
	behind.Labels["name"] = "web"
	pods := s.start(t, behind, server(ns, "other", "node2"))
	for _, from := range pods {
		for _, name := range []string{"web", "web." + ns + ".svc.cluster.local"} {
			await(t, 30*time.Second, "pod "+from.Name+" to reach "+name, func(ctx context.Context) error {
				return s.expect(ctx, from, "http", name, 80, "hostname", "behind")
			})
		}
	}
}
