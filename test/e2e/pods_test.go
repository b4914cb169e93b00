// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"weft.dev/weft/test/cluster"
)

// starting is how long a pod may take to be Ready on a machine that does much
// else.
const starting = 90 * time.Second

// namespace makes a namespace for the test, which goes with it.
func (s *suite) namespace(t *testing.T, annotations ...string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: slug(t) + "-", Annotations: pairs(annotations)}}
	ns, err := s.Client().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.keepEvidence(t)
		if err := s.Client().CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	await(t, 30*time.Second, "the service account of namespace "+ns.Name, func(ctx context.Context) error {
		_, err := s.Client().CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}

// slug is the name of the test as a DNS label.
func slug(t *testing.T) string {
	return strings.ToLower(strings.NewReplacer("_", "-", " ", "-").Replace(path.Base(t.Name())))
}

func pairs(list []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// server is a pod that answers by HTTP and UDP on port 8080 and dials for
// others. It has its name as label "name".
func server(namespace, name, node string, annotations ...string) *corev1.Pod {
	return podOf(namespace, name, node, corev1.Container{
		Name: "main", Image: cluster.ImageAgnhost, Command: []string{"/agnhost", "netexec", "--http-port=8080", "--udp-port=8080"},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/hostname", Port: intstr.FromInt32(8080)}},
			PeriodSeconds: 1, TimeoutSeconds: 5,
		},
	}, annotations...)
}

// sleeper is a pod with a shell and nothing to do.
func sleeper(namespace, name, node string, annotations ...string) *corev1.Pod {
	return podOf(namespace, name, node, corev1.Container{Name: "main", Image: cluster.ImageToolbox, Command: []string{"/bin/sleep", "100000"}}, annotations...)
}

func podOf(namespace, name, node string, c corev1.Container, annotations ...string) *corev1.Pod {
	c.ImagePullPolicy = corev1.PullNever
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"name": name}, Annotations: pairs(annotations)},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{c},
		},
	}
	if node != "" {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return p
}

// create creates pods.
func (s *suite) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := s.Client().CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// start creates pods and returns them as they are once all are Ready.
func (s *suite) start(t *testing.T, pods ...*corev1.Pod) []*corev1.Pod {
	t.Helper()
	s.create(t, pods...)
	var ready []*corev1.Pod
	for _, p := range pods {
		ready = append(ready, s.ready(t, p.Namespace, p.Name, ""))
	}
	return ready
}

// ready waits for a pod to be Ready, another one than that with the UID.
func (s *suite) ready(t *testing.T, namespace, name, notUID string) (p *corev1.Pod) {
	t.Helper()
	err := awaitErr(t.Context(), starting, "pod "+name+" to be Ready", func(ctx context.Context) (err error) {
		p, err = s.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case string(p.UID) == notUID:
			return errors.New("it is the old one still")
		case !isReady(p):
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(s.events(context.Background(), namespace, name), "\n"))
	}
	return p
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// events are those of a pod, as "Reason: message".
func (s *suite) events(ctx context.Context, namespace, pod string) []string {
	list, err := s.Client().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod})
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Reason+": "+e.Message)
	}
	return all
}

// remove deletes a pod and returns when it is gone.
func (s *suite) remove(t *testing.T, namespace, name string) {
	t.Helper()
	if err := s.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, starting, "pod "+name+" to go", func(ctx context.Context) error {
		_, err := s.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// force deletes a pod's object at once; the kubelet learns it afterwards.
func (s *suite) force(t *testing.T, namespace, name string) {
	t.Helper()
	now := int64(0)
	if err := s.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}

// addressesOf are the pod's, IPv4 first.
func addressesOf(p *corev1.Pod) (all []netip.Addr) {
	for _, a := range p.Status.PodIPs {
		all = append(all, netip.MustParseAddr(a.IP))
	}
	return all
}

// host is the node that a pod is on.
func (s *suite) host(p *corev1.Pod) *cluster.Node { return s.Node(p.Spec.NodeName) }

// sh runs a shell command in a pod.
func (s *suite) sh(t *testing.T, p *corev1.Pod, script string) string {
	t.Helper()
	return s.kubectl(t, "-n", p.Namespace, "exec", p.Name, "--", "sh", "-ec", script)
}
