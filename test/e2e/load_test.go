// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// load is what the program in load/ reports.
type load struct {
	Streams, Exchanges, Requests int
	Longest                      time.Duration
	Errors                       []string
}

// loadPod is a pod that runs the program.
func loadPod(namespace, name, node string, args ...string) *corev1.Pod {
	return podOf(namespace, name, node, corev1.Container{Name: "main", Image: imageLoad, Command: append([]string{"/load"}, args...)})
}

// traffic are connections that are open and requests that go on, between pods on
// the same and on different nodes, directly and through a Service.
type traffic struct {
	clients []*corev1.Pod
	streams int // of each client
}

// underLoad starts traffic and returns when all connections are open.
func (s *suite) underLoad(t *testing.T, ns string) traffic {
	t.Helper()
	servers := s.start(t, loadPod(ns, "server1", "node1", "server", ":7000"), loadPod(ns, "server2", "node2", "server", ":7000"))
	var targets []string
	for _, p := range servers {
		for _, address := range addressesOf(p) {
			targets = append(targets, netip.AddrPortFrom(address, 7000).String())
		}
	}
	targets = append(targets, s.throughService(t, ns, "server2")...)
	clients := s.start(t,
		loadPod(ns, "client1", "node1", append([]string{"client", ":7001"}, targets...)...),
		loadPod(ns, "client2", "node2", append([]string{"client", ":7001"}, targets...)...))
	for _, c := range clients {
		await(t, 30*time.Second, "the streams of "+c.Name, func(ctx context.Context) error {
			l, err := s.load(ctx, c)
			if err == nil && l.Streams != len(targets) {
				err = fmt.Errorf("%d of %d are open", l.Streams, len(targets))
			}
			return err
		})
	}
	return traffic{clients, len(targets)}
}

// unbroken checks that no connection broke and no request failed.
func (s *suite) unbroken(t *testing.T, of traffic) {
	t.Helper()
	for _, c := range of.clients {
		l, err := s.load(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d exchanges, %d requests, the longest took %s", c.Name, l.Exchanges, l.Requests, l.Longest)
		if len(l.Errors) > 0 || l.Streams != of.streams || l.Exchanges == 0 || l.Requests == 0 {
			t.Errorf("%s has %d of %d streams left, and errors\n%s", c.Name, l.Streams, of.streams, strings.Join(l.Errors, "\n"))
		}
	}
}

// throughService makes a Service for the pod and returns where it is reached, once
// it is from every node.
func (s *suite) throughService(t *testing.T, namespace, pod string) (targets []string) {
	t.Helper()
	for _, address := range s.service(t, namespace, pod, corev1.ServiceTypeClusterIP, 7000).Spec.ClusterIPs {
		targets = append(targets, net.JoinHostPort(address, "80"))
	}
	for _, n := range s.Nodes {
		for _, target := range targets {
			await(t, 30*time.Second, "the Service at "+target+" on "+n.Name, func(ctx context.Context) error {
				return n.Enter(func() error {
					conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", target)
					if err == nil {
						err = conn.Close()
					}
					return err
				})
			})
		}
	}
	return targets
}

// load asks a client pod.
func (s *suite) load(ctx context.Context, p *corev1.Pod) (l load, err error) {
	text, err := askHTTP(ctx, s.host(p), netip.AddrPortFrom(addressesOf(p)[0], 7001), "")
	if err == nil {
		err = json.Unmarshal([]byte(text), &l)
	}
	return l, err
}

// churn makes and deletes pods on both nodes until the function that it returns
// is called, which returns how many started.
func (s *suite) churn(t *testing.T, namespace string) (stop func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	started := 0
	for _, node := range []string{"node1", "node2"} {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := s.comeAndGo(context.WithoutCancel(ctx), sleeper(namespace, fmt.Sprintf("churn-%s-%d", node, i), node)); err != nil {
					t.Errorf("pods that come and go: %v", err)
					return
				}
				mu.Lock()
				started++
				mu.Unlock()
			}
		})
	}
	return func() int {
		cancel()
		wg.Wait()
		return started
	}
}

// comeAndGo makes a pod, waits until it is Ready, and deletes it.
func (s *suite) comeAndGo(ctx context.Context, p *corev1.Pod) error {
	pods := s.Client().CoreV1().Pods(p.Namespace)
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return err
	}
	err := awaitErr(ctx, starting, "pod "+p.Name+" to be Ready", func(ctx context.Context) error {
		got, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		if err == nil && !isReady(got) {
			err = fmt.Errorf("it is %s", got.Status.Phase)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(s.events(ctx, p.Namespace, p.Name), "\n"))
	}
	return pods.Delete(ctx, p.Name, metav1.DeleteOptions{})
}
