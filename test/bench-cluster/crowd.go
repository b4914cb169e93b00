// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"weft.dev/weft/api/v1alpha1"
	core "weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry/convert"
	"weft.dev/weft/test/cluster"
)

// crowd is the rest of a large cluster: nodes without machines, each with a
// lease, and their pods.
type crowd struct {
	client kubernetes.Interface
	leases dynamic.NamespaceableResourceInterface
	nodes  []crowdNode
	pods   int
}

type crowdNode struct {
	name    string
	address netip.Addr
	block   netip.Prefix
}

// crowdNamespace has the pods of the crowd.
const crowdNamespace = "elsewhere"

// crowdPool is the pool of deploy/weft.yaml, and crowdUplinks where the nodes
// are: on another segment than the real one, so that they are behind VXLAN.
var (
	crowdPool    = netip.MustParsePrefix("10.42.0.0/16")
	crowdUplinks = netip.MustParsePrefix("198.19.0.0/16")
)

func newCrowd(ctx context.Context, c *contender, nodes, pods int) (*crowd, error) {
	config := c.RESTConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf" // for thousands of objects it makes a difference
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	weft, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, err
	}
	w := &crowd{client: client, pods: pods, leases: weft.Resource(v1alpha1.GroupVersion.WithResource("subnetleases"))}
	taken := map[string]bool{}
	list, err := w.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, lease := range list.Items {
		taken[lease.GetName()] = true
	}
	for i := 0; len(w.nodes) < nodes && i < 256; i++ {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, byte(i), 0}), 24)
		if !taken[core.LeaseName(block)] {
			w.nodes = append(w.nodes, crowdNode{name: fmt.Sprintf("elsewhere-%d", i), block: block, address: uplink(i)})
		}
	}
	if len(w.nodes) < nodes {
		return nil, fmt.Errorf("invent %d nodes: the pool %s has blocks for %d only", nodes, crowdPool, len(w.nodes))
	}
	return w, nil
}

func uplink(i int) netip.Addr {
	a := crowdUplinks.Addr().As4()
	a[3] = byte(i)
	return netip.AddrFrom4(a)
}

// crowdWorkers is how many requests are under way at a time: more than the API
// server answers at once.
const crowdWorkers = 32

// gather creates everything.
func (w *crowd) gather(ctx context.Context) error {
	if err := each(ctx, len(w.nodes), func(ctx context.Context, i int) error { return w.addNode(ctx, w.nodes[i]) }); err != nil {
		return err
	}
	return each(ctx, w.pods, func(ctx context.Context, i int) error {
		return w.addPod(ctx, i, w.nodes[i%len(w.nodes)])
	})
}

// each calls f for 0 to n-1, and stops at the first error.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	indices := make(chan int)
	var workers sync.WaitGroup
	for range crowdWorkers {
		workers.Go(func() {
			for i := range indices {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case indices <- i:
		case <-ctx.Done():
		}
	}
	close(indices)
	workers.Wait()
	return context.Cause(ctx)
}

// addNode creates a Node and its lease. It has no condition Ready: a node that
// was Ready and is silent makes the controllers write to all of its pods. And it
// has no label that a DaemonSet selects.
func (w *crowd) addNode(ctx context.Context, n crowdNode) error {
	node, err := w.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.name, Labels: map[string]string{corev1.LabelHostname: n.name, corev1.LabelTopologyZone: "elsewhere"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Node %s: %w", n.name, err)
	}
	node.ResourceVersion = "" // controllers have their say meanwhile, about other things
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: n.address.String()},
		{Type: corev1.NodeHostName, Address: n.name},
	}
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of Node %s: %w", n.name, err)
	}
	lease := convert.SubnetLease(core.Lease{
		Subnet: n.block, Pool: "default", Node: n.name, NodeUID: string(node.UID), Addresses: []netip.Addr{n.address},
		VTEP: core.VTEP{MAC: core.VTEPMAC(n.name), VNI: v1alpha1.DefaultVNI, Port: v1alpha1.DefaultVXLANPort},
	})
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lease)
	if err != nil {
		return err
	}
	if _, err = w.leases.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create SubnetLease %s: %w", lease.Name, err)
	}
	return nil
}

// addPod creates a pod and says of it what a kubelet would.
func (w *crowd) addPod(ctx context.Context, i int, n crowdNode) error {
	pods := w.client.CoreV1().Pods(crowdNamespace)
	pod := podOn(n.name, fmt.Sprintf("pod-%d", i), "crowd")
	pod.Namespace = crowdNamespace
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create pod %d of %s: %w", i, n.name, err)
	}
	address := n.block.Addr().As4()
	address[3] = byte(2 + i/len(w.nodes))
	is := func(t corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
	}
	now, ip := metav1.Now(), netip.AddrFrom4(address).String()
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now,
		HostIP: n.address.String(), HostIPs: []corev1.HostIP{{IP: n.address.String()}},
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{is(corev1.PodScheduled), is(corev1.PodInitialized), is(corev1.ContainersReady), is(corev1.PodReady)},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: cluster.ImagePause, ImageID: cluster.ImagePause, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}},
	}
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of pod %s: %w", pod.Name, err)
	}
	return nil
}
