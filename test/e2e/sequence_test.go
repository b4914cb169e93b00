// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/core/wish"
)

// How docs/sequence.md says that a pod starts. Arrows 3 and 4 are two watches of
// one event, of which either may be first, and what several see of one moment has
// no order: therefore these are several lists.
var (
	startOrder = []string{
		"API server: create the pod",               // 1
		"trace: ADD created",                       //
		"API server: bind it",                      // 2
		"trace: ADD scheduled",                     //
		"kubelet: SyncLoop ADD",                    // 4
		"kubelet: Creating PodSandbox",             // 5
		"containerd: RunPodSandbox",                //
		"weft-cni: ADD",                            // 6
		"trace: ADD shim started",                  //
		"trace: ADD received",                      // 7
		"trace: ADD pod known",                     // 8
		"trace: ADD reserved",                      // 9
		"API server: lease 10-42-255-50-32",        // 10
		"trace: ADD announced",                     //
		"trace: ADD attached",                      // 11
		"trace: ADD answered",                      // 12
		"containerd: RunPodSandbox returns",        // 13
		"API server: its status, from the kubelet", // 14
		"trace: ADD addresses in status",           //
		"trace: ADD ready",                         // 15
	}
	startBranches = [][]string{
		{"API server: bind it", "trace: ADD watched", "trace: ADD ready"}, // 3
		{"trace: ADD answered", "agent's log: ADD served"},                // 12
		{"API server: its status, from the kubelet", "kubelet: status written"},
		{"containerd: RunPodSandbox returns", "kubelet: observed pod startup"},
	}
	endOrder = []string{
		"API server: delete the pod", // 1
		"kubelet: SyncLoop DELETE",
		"containerd: StopContainer", // 2
		"containerd: StopPodSandbox",
		"weft-cni: DEL", // 3
		"trace: DEL shim started",
		"trace: DEL received",                              // 4
		"trace: DEL answered",                              // 5
		"containerd: network torn down",                    // 7
		"API server: delete it for good, from the kubelet", // 8
		"trace: DEL gone",                                  // 9
	}
	endBranches = [][]string{
		{"trace: DEL answered", "agent's log: DEL served"},
		{"API server: delete it for good, from the kubelet", "kubelet: removed from the API"},
	}
)

// Whoever asks why a pod took long to start or to end finds when each arrow of
// docs/sequence.md happened, in the API server's audit log, the logs of kubelet,
// containerd, weft-cni and the agent, and `weft pod trace`; and they happened in
// that order. Where a collector is configured, it has them as one trace.
func testSequence(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.verbose(t, s.Nodes[0])
	pod := s.start(t, server(ns, "seq", s.Nodes[0].Name, wish.IPv4, "10.42.255.50"))[0]
	s.inOrder(t, pod, append(startBranches, startOrder))
	s.checkTrace(t, pod, map[string]string{
		"pod start": "", "schedule": "pod start", "kubelet and runtime": "pod start", "weft-cni ADD": "pod start", "agent ADD": "weft-cni ADD",
		"pod": "agent ADD", "reserve": "agent ADD", "announce": "agent ADD", "kernel": "agent ADD", "answer": "agent ADD",
		"runtime, kubelet and watch": "pod start", "containers and readiness": "pod start",
	})

	plain := s.start(t, server(ns, "plain", s.Nodes[0].Name))[0]
	s.remove(t, ns, "seq")
	s.inOrder(t, pod, append(endBranches, endOrder))
	s.checkTrace(t, pod, map[string]string{"weft-cni DEL": "", "agent DEL": "weft-cni DEL"})

	// Arrow 10 is for few pods only; 8 may be for any.
	for _, e := range s.audit(t) {
		o := e.ObjectRef
		if e.User.Username == agentUser && o.Namespace == ns && o.Name == plain.Name && e.Verb != "get" {
			t.Errorf("an agent asked the API server to %s %s %s for a pod that asks for nothing", e.Verb, o.Resource, o.Subresource)
		}
	}
}

// agentUser is who the agents are to the API server.
const agentUser = "system:serviceaccount:kube-system:weft"

// inOrder waits until everything has been told and compares the moments.
func (s *suite) inOrder(t *testing.T, pod *corev1.Pod, orders [][]string) {
	t.Helper()
	var told story
	await(t, 30*time.Second, "all who took part to tell", func(ctx context.Context) (err error) {
		if told, err = s.tell(ctx, t, pod); err != nil {
			return err
		}
		return told.has(orders...)
	})
	for _, order := range orders {
		told.inOrder(t, order)
	}
}

// checkTrace: the collector has these spans, each below the right one.
func (s *suite) checkTrace(t *testing.T, pod *corev1.Pod, parents map[string]string) {
	t.Helper()
	await(t, 30*time.Second, "the trace", func(context.Context) error {
		spans := s.traces.of(string(pod.UID))
		for name, above := range parents {
			span, parent := spans[name], spans[above]
			switch {
			case span == nil:
				return fmt.Errorf("there is no span %q among %d", name, len(spans))
			case above == "" && len(span.GetParentSpanId()) > 0:
				return fmt.Errorf("span %q has a parent", name)
			case above != "" && !bytes.Equal(span.GetParentSpanId(), parent.GetSpanId()):
				return fmt.Errorf("span %q is not below %q", name, above)
			case above != "" && (span.GetStartTimeUnixNano() < parent.GetStartTimeUnixNano() || span.GetEndTimeUnixNano() > parent.GetEndTimeUnixNano()):
				return fmt.Errorf("span %q is longer than %q", name, above)
			case span.GetStartTimeUnixNano() > span.GetEndTimeUnixNano():
				return fmt.Errorf("span %q ends before it begins", name)
			}
		}
		return nil
	})
}
