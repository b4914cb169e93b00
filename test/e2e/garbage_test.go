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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podsOn are the pods on a node that have a network of their own, by
// namespace/name.
func (s *suite) podsOn(ctx context.Context, node string) (map[string]corev1.Pod, error) {
	list, err := s.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		if !p.Spec.HostNetwork {
			pods[p.Namespace+"/"+p.Name] = p
		}
	}
	return pods, nil
}

// Pods are deleted by force, as people do when something hangs. Their addresses
// come back as soon as the kubelet has ended them.
func testForceDeleted(t *testing.T, s *suite) {
	ns := s.namespace(t)
	pods := s.start(t, sleeper(ns, "a", "node1"), sleeper(ns, "b", "node1"), sleeper(ns, "c", "node1"))
	for _, p := range pods {
		s.force(t, ns, p.Name)
	}
	s.freed(t, 60*time.Second, s.Nodes[0], pods...)
}

// containerd is killed while pods run, and pods are deleted before it is back.
// Running pods keep their network all the time; when containerd is back, the
// deleted ones end and their addresses come back, and new ones start.
func testKilledContainerd(t *testing.T, s *suite) {
	ns := s.namespace(t)
	pods := s.start(t, server(ns, "stays", "node1"), sleeper(ns, "goes", "node2"), sleeper(ns, "forced", "node2"), server(ns, "runs", "node2"))
	if err := s.Nodes[1].Kill("containerd"); err != nil {
		t.Fatal(err)
	}
	s.force(t, ns, "forced")
	if err := s.Client().CoreV1().Pods(ns).Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	holdsFor(t, 2*time.Second, "a running pod without containerd", func(ctx context.Context) error {
		return s.seesSource(ctx, pods[0], addressesOf(pods[3])[0], addressesOf(pods[0])[0])
	})
	if err := s.Nodes[1].Start("containerd"); err != nil {
		t.Fatal(err)
	}
	s.freed(t, 90*time.Second, s.Nodes[1], pods[1], pods[2])
	s.start(t, server(ns, "new", "node2"))
}

// The kubelet is killed, and a pod of its node is deleted by force meanwhile, so
// that no API object tells of it any more. Running pods keep their network; when
// the kubelet is back, it ends that pod, and its addresses come back.
func testKilledKubelet(t *testing.T, s *suite) {
	ns := s.namespace(t)
	pods := s.start(t, server(ns, "stays", "node1"), sleeper(ns, "forced", "node2"), server(ns, "runs", "node2"))
	if err := s.Nodes[1].Kill("kubelet"); err != nil {
		t.Fatal(err)
	}
	s.force(t, ns, "forced")
	holdsFor(t, 2*time.Second, "a running pod without kubelet", func(ctx context.Context) error {
		return s.seesSource(ctx, pods[0], addressesOf(pods[2])[0], addressesOf(pods[0])[0])
	})
	if err := s.Nodes[1].Start("kubelet"); err != nil {
		t.Fatal(err)
	}
	s.freed(t, 90*time.Second, s.Nodes[1], pods[1])
	s.start(t, sleeper(ns, "new", "node2"))
}

// A sandbox is gone, and nobody remembers it: containerd's record of it was lost,
// and the pod's object is deleted. No DEL comes for it, ever; its addresses come
// back all the same, and `weft ipam check --history` says why.
func testForgotten(t *testing.T, s *suite) {
	ns := s.namespace(t)
	n := s.Nodes[1]
	pod := s.start(t, sleeper(ns, "forgotten", n.Name))[0]
	if err := n.Kill("kubelet"); err != nil {
		t.Fatal(err)
	}
	s.force(t, ns, pod.Name)
	a, err := s.attachmentOf(t.Context(), n, ns+"/"+pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	ctr := func(args ...string) string {
		t.Helper()
		out, err := n.Ctr(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := strings.Fields(ctr("containers", "list", "--quiet", `labels."io.kubernetes.pod.uid"==`+string(pod.UID)))
	if len(all) != 2 {
		t.Fatalf("the pod has containers %v, want the sandbox and one", all)
	}
	for _, id := range all {
		ctr("tasks", "delete", "--force", id)
		ctr("containers", "delete", id)
	}
	if err := n.Kill("containerd"); err != nil { // it knows of them in its memory
		t.Fatal(err)
	}
	if _, err := n.Exec(t.Context(), "umount", a.Netns); err != nil {
		t.Fatal(err)
	}
	for _, component := range []string{"containerd", "kubelet"} {
		if err := n.Start(component); err != nil {
			t.Fatal(err)
		}
	}
	s.freed(t, 120*time.Second, n, pod)
	type finding struct {
		Addresses []netip.Addr
		Observed  string
	}
	var collected []finding
	if err := s.weftOn(t.Context(), n, &collected, "ipam", "check", "--history"); err != nil {
		t.Error(err)
	}
	const why = "namespace gone, interface gone"
	if !slices.ContainsFunc(collected, func(f finding) bool {
		return slices.Equal(f.Addresses, addressesOf(pod)) && f.Observed == why
	}) {
		t.Errorf("garbage collection says that it did %v, want %v because of %q among it", collected, addressesOf(pod), why)
	}
}

// A node loses its power and boots again. Its pods start again, with addresses
// that nobody else has, and are reached from the other node; whatever the node
// had before is free, and nobody had to help.
func testReboot(t *testing.T, s *suite) {
	ns := s.namespace(t)
	pods := s.start(t, server(ns, "stays", "node1"), server(ns, "back", "node2"), server(ns, "also", "node2"))
	sandboxes := map[string]string{}
	before, err := s.attachments(t.Context(), s.Nodes[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range before {
		sandboxes[a.ContainerID] = a.Pod
	}
	if err := s.Nodes[1].Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, 2*starting, "the pods of node2 to be back", func(ctx context.Context) error {
		all, err := s.attachments(ctx, s.Nodes[1])
		if err != nil {
			return err
		}
		for _, a := range all {
			if pod, old := sandboxes[a.ContainerID]; old {
				return fmt.Errorf("the journal has the sandbox of %s of before the reboot: %+v", pod, a)
			}
		}
		for _, name := range []string{"back", "also"} {
			p, err := s.Client().CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			i := slices.IndexFunc(all, func(a attachment) bool { return a.Pod == ns+"/"+name })
			if i < 0 || !isReady(p) || !slices.Equal(addressesOf(p), all[i].Addresses) {
				return fmt.Errorf("pod %s is not back: %v", name, addressesOf(p))
			}
			if err := s.seesSource(ctx, pods[0], addressesOf(p)[0], addressesOf(pods[0])[0]); err != nil {
				return err
			}
		}
		return nil
	})
	s.reached(t, s.ready(t, ns, "back", ""), pods[0])
	s.consistent(t, starting, s.Nodes[1])
}

// The API server is away for a while. Pods go on, and a pod whose sandbox dies
// gets a new one, as its annotations say. When the API server is back, the agents
// hear from it again, the pod's new addresses show, and pods start as ever.
func testOutage(t *testing.T, s *suite) {
	ns := s.namespace(t)
	const mtu = "1300"
	pods := s.start(t, server(ns, "a", "node1", "weft.dev/mtu", mtu), server(ns, "b", "node2"))
	old, err := s.attachmentOf(t.Context(), s.Nodes[0], ns+"/a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StopAPI(); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := s.StartAPI(); err != nil {
			t.Error(err)
		}
	}
	defer restore()
	if _, err := s.Nodes[0].Ctr(t.Context(), "tasks", "kill", "--signal", "SIGKILL", old.ContainerID); err != nil {
		t.Fatal(err)
	}
	var now attachment
	await(t, starting, "a new sandbox of the pod, without the API server", func(ctx context.Context) (err error) {
		if now, err = s.attachmentOf(ctx, s.Nodes[0], ns+"/a"); err != nil {
			return err
		}
		if now.ContainerID == old.ContainerID {
			return errors.New("it is the old one still")
		}
		if err := answers("a")(askHTTP(ctx, s.Nodes[1], netip.AddrPortFrom(now.Addresses[0], 8080), "hostname")); err != nil {
			return err
		}
		route, err := s.Nodes[0].Exec(ctx, "ip", "-o", "route", "get", now.Addresses[0].String())
		if err != nil {
			return err
		}
		fields := strings.Fields(route)
		link, err := s.Nodes[0].Exec(ctx, "ip", "-o", "link", "show", "dev", fields[slices.Index(fields, "dev")+1])
		if err == nil && !strings.Contains(link, "mtu "+mtu) {
			err = fmt.Errorf("the interface is %s, want mtu %s", link, mtu)
		}
		return err
	})
	for f, address := range addressesOf(pods[1]) {
		if err := answers("b")(askHTTP(t.Context(), s.Nodes[0], netip.AddrPortFrom(address, 8080), "hostname")); err != nil {
			t.Errorf("family %d: %v", f, err)
		}
	}
	restore()
	await(t, starting, "the new addresses in the pod's status", func(ctx context.Context) error {
		p, err := s.Client().CoreV1().Pods(ns).Get(ctx, "a", metav1.GetOptions{})
		if err == nil && (!isReady(p) || !slices.Equal(addressesOf(p), now.Addresses)) {
			err = fmt.Errorf("found %v, want %v and Ready", addressesOf(p), now.Addresses)
		}
		return err
	})
	for _, n := range s.Nodes {
		await(t, 60*time.Second, "contact of "+n.Name, func(ctx context.Context) error { return s.settled(ctx, n) })
	}
	s.start(t, sleeper(ns, "new", "node1"), sleeper(ns, "new2", "node2"))
}
