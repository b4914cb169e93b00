// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// agentLabel selects the agents' pods.
const agentLabel = "app.kubernetes.io/component=agent"

// All agents vanish at once: somebody deletes their pods by force, and later
// something kills all their processes. No connection between pods breaks and no
// request fails; pods that are made meanwhile start once there are agents again,
// and others end.
func testAgentsAtOnce(t *testing.T, s *suite) {
	ns := s.namespace(t)
	load := s.underLoad(t, ns)
	before := s.agents(t)
	churn := s.churn(t, ns)
	s.kubectl(t, "-n", "kube-system", "delete", "pod", "-l", agentLabel, "--force", "--grace-period=0")
	await(t, starting, "other agents", func(ctx context.Context) error {
		return s.agentsReady(ctx, func(p corev1.Pod) bool { return p.Name != before[p.Spec.NodeName] })
	})
	agents, err := s.agentPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range agents {
		if err := s.killAgent(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
	await(t, starting, "the agents to be back", func(ctx context.Context) error {
		return s.agentsReady(ctx, func(p corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount > 0 })
	})
	made := churn()
	s.unbroken(t, load)
	t.Logf("%d pods were made and deleted meanwhile", made)
	if made < 2 {
		t.Errorf("%d pods started, want some", made)
	}
	for _, n := range s.Nodes {
		await(t, 30*time.Second, n.Name, func(ctx context.Context) error { return s.settled(ctx, n) })
	}
}

// agentPods are all agents' pods.
func (s *suite) agentPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.Client().CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: agentLabel})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// agents are the names of the agents' pods by node, without those that end.
func (s *suite) agents(t *testing.T) map[string]string {
	t.Helper()
	pods, err := s.agentPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			names[p.Spec.NodeName] = p.Name
		}
	}
	return names
}

// agentsReady: every node has an agent that is Ready and wanted.
func (s *suite) agentsReady(ctx context.Context, wanted func(corev1.Pod) bool) error {
	pods, err := s.agentPods(ctx)
	if err != nil {
		return err
	}
	ready := 0
	for _, p := range pods {
		if isReady(&p) && wanted(p) {
			ready++
		}
	}
	if ready != len(s.Nodes) {
		return fmt.Errorf("%d of %d are", ready, len(s.Nodes))
	}
	return nil
}

// killAgent kills the process of an agent. That it has ended already is no error.
func (s *suite) killAgent(ctx context.Context, p *corev1.Pod) error {
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	_, err := s.host(p).Ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", id)
	if err != nil && (strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "already finished")) {
		return nil
	}
	return err
}
