// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"weft.dev/weft/test/cluster"
)

// benchNamespace has all pods that are measured.
const benchNamespace = "bench"

// batchLabel tells the pods of one batch from others.
const batchLabel = "batch"

// batchLimit is when waiting for a batch has become pointless.
const batchLimit = 4 * time.Minute

// batch is pods that are created at once, and what was seen of them.
type batch struct {
	client kubernetes.Interface
	name   string
	watch  watch.Interface

	names   []string
	created []time.Time // right before the request
	ready   []time.Time // when the watch brought the news
	stamped []float64   // seconds from creation to Ready by the object's own times, which are whole seconds
}

// newBatch begins to watch pods that are still to be created.
func newBatch(ctx context.Context, client kubernetes.Interface, name string, count int) (*batch, error) {
	b := &batch{
		client: client, name: name,
		names:   make([]string, count),
		created: make([]time.Time, count), ready: make([]time.Time, count),
		stamped: make([]float64, count),
	}
	for i := range b.names {
		b.names[i] = fmt.Sprintf("%s-%d", name, i)
	}
	list, err := client.CoreV1().Pods(benchNamespace).List(ctx, b.selector())
	if err != nil {
		return nil, err
	}
	o := b.selector()
	o.ResourceVersion = list.ResourceVersion
	if b.watch, err = client.CoreV1().Pods(benchNamespace).Watch(ctx, o); err != nil {
		return nil, fmt.Errorf("watch pods of batch %s: %w", name, err)
	}
	return b, nil
}

func (b *batch) selector() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: batchLabel + "=" + b.name}
}

// start creates all pods at the same time, and returns when they are Ready.
func (b *batch) start(ctx context.Context, node string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var creating sync.WaitGroup
	for i, name := range b.names {
		creating.Go(func() {
			b.created[i] = time.Now()
			_, err := b.client.CoreV1().Pods(benchNamespace).Create(ctx, podOn(node, name, b.name), metav1.CreateOptions{})
			if err != nil {
				cancel(fmt.Errorf("create pod %s: %w", name, err))
			}
		})
	}
	err := b.follow(ctx, "Ready", func(i int, event watch.EventType, pod *corev1.Pod) (bool, error) {
		if event == watch.Deleted || pod.Status.Phase == corev1.PodFailed {
			return false, fmt.Errorf("start pod %s: it has ended: %s %s", pod.Name, pod.Status.Reason, pod.Status.Message)
		}
		at := readySince(pod)
		if at.IsZero() {
			return false, nil
		}
		b.ready[i] = time.Now()
		b.stamped[i] = at.Sub(pod.CreationTimestamp.Time).Seconds()
		return true, nil
	})
	if err != nil {
		cancel(err)
	}
	creating.Wait()
	return err
}

// stop deletes the pods and returns when they are gone: the kubelet has stopped
// container and sandbox then, and containerd has taken the network away.
func (b *batch) stop(ctx context.Context) error {
	err := b.client.CoreV1().Pods(benchNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, b.selector())
	if err != nil {
		return fmt.Errorf("delete pods of batch %s: %w", b.name, err)
	}
	return b.follow(ctx, "gone", func(_ int, event watch.EventType, _ *corev1.Pod) (bool, error) {
		return event == watch.Deleted, nil
	})
}

// follow reads the watch until done was true once for every pod; what says when
// that is.
func (b *batch) follow(ctx context.Context, what string, done func(i int, event watch.EventType, pod *corev1.Pod) (bool, error)) error {
	index := make(map[string]int, len(b.names)) // of those that are not done
	for i, name := range b.names {
		index[name] = i
	}
	limit := time.NewTimer(batchLimit)
	defer limit.Stop()
	for len(index) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("wait for pods of batch %s: %d of %d are not %s after %s", b.name, len(index), len(b.names), what, batchLimit)
		case event, ok := <-b.watch.ResultChan():
			if !ok {
				return errors.New("watch pods: the API server has ended the watch")
			}
			pod, is := event.Object.(*corev1.Pod)
			if !is {
				return fmt.Errorf("watch pods: expected a Pod, found event %s with %v", event.Type, event.Object)
			}
			i, waiting := index[pod.Name]
			if !waiting {
				continue
			}
			is, err := done(i, event.Type, pod)
			if err != nil {
				return err
			}
			if is {
				delete(index, pod.Name)
			}
		}
	}
	return nil
}

// latencies are the seconds from creation to Ready by this process's clock.
func (b *batch) latencies() []float64 {
	all := make([]float64, len(b.names))
	for i := range all {
		all[i] = b.ready[i].Sub(b.created[i]).Seconds()
	}
	return all
}

func podOn(node, name, batch string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: benchNamespace, Labels: map[string]string{batchLabel: batch}},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "main", Image: cluster.ImagePause}},
			// A node that is not Ready for a moment is no reason to lose it.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// readySince is when the pod became Ready, zero if it is not.
func readySince(pod *corev1.Pod) time.Time {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return time.Time{}
	}
	return pod.Status.Conditions[i].LastTransitionTime.Time
}
