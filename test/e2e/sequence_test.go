// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/report"
)

// moment is when something happened, and who says so.
type moment struct {
	what string
	at   time.Time
}

// Whoever asks why a pod took long to start finds when each arrow of
// docs/sequence.md happened, in the API server's audit log, containerd's log, the
// kubelet's log and `weft pod trace`; they happened in that order. And where a
// collector is configured, it has them as one trace.
func testSequence(t *testing.T, s *suite) {
	ns := s.namespace(t)
	pod := s.start(t, server(ns, "seq", "node1", wish.IPv4, "10.42.255.50"))[0]
	steps := s.steps(t, pod)
	logs := s.runtimeMoments(t, pod)
	requests := s.requestMoments(t, pod, logs["returns sandbox id"].at)
	// Arrows 3 and 4 are two watches of one event: either may be first, so the
	// agent's watch is compared with what was before both only.
	inOrder(t, []moment{requests["create"], requests["bind"], logs["RunPodSandbox"],
		steps["shim started"], steps["received"], steps["pod known"], steps["reserved"], steps["announced"], steps["attached"], steps["answered"],
		logs["returns sandbox id"], requests["status"], steps["addresses in status"], steps["ready"]})
	inOrder(t, []moment{requests["bind"], steps["watched"], steps["ready"]})
	inOrder(t, []moment{requests["lease"], steps["announced"]})
	inOrder(t, []moment{steps["reserved"], requests["lease"]})
	inOrder(t, []moment{logs["returns sandbox id"], s.kubeletMoment(t, pod)})
	s.checkTrace(t, pod)
}

// inOrder: each moment is not before the one before it.
func inOrder(t *testing.T, moments []moment) {
	t.Helper()
	var text strings.Builder
	good := true
	for i, m := range moments {
		mark := ""
		if m.at.IsZero() || i > 0 && m.at.Before(moments[i-1].at) {
			good, mark = false, "  <-- missing or too early"
		}
		fmt.Fprintf(&text, "%s  %s%s\n", m.at.UTC().Format("15:04:05.000000"), m.what, mark)
	}
	t.Logf("\n%s", text.String())
	if !good {
		t.Error("it did not happen in this order: see above")
	}
}

// steps are those of the pod's ADD in `weft pod trace`, once it is complete.
func (s *suite) steps(t *testing.T, pod *corev1.Pod) map[string]moment {
	t.Helper()
	var found map[string]moment
	await(t, 20*time.Second, "the timeline of the pod", func(ctx context.Context) error {
		var rows []report.Step
		if err := s.weftOn(ctx, s.host(pod), &rows, "pod", "trace", pod.Namespace+"/"+pod.Name); err != nil {
			return err
		}
		found = map[string]moment{}
		for _, r := range rows {
			if r.Verb == "ADD" {
				found[r.Step] = moment{"agent: " + r.Step, r.At}
			}
		}
		if _, ready := found["ready"]; !ready {
			return fmt.Errorf("it has no step ready: %v", rows)
		}
		return nil
	})
	return found
}

// requestMoments are from the audit log: of the kubelet's writes of the status
// the first after the sandbox was there.
func (s *suite) requestMoments(t *testing.T, pod *corev1.Pod, sandbox time.Time) map[string]moment {
	t.Helper()
	found := map[string]moment{}
	for _, e := range s.audit(t) {
		ours := e.ObjectRef.Namespace == pod.Namespace && e.ObjectRef.Name == pod.Name && e.ObjectRef.Resource == "pods"
		key, at := "", e.RequestReceivedTimestamp
		switch {
		case ours && e.Verb == "create" && e.ObjectRef.Subresource == "":
			key = "create"
		case ours && e.Verb == "create" && e.ObjectRef.Subresource == "binding":
			key = "bind"
		case ours && e.ObjectRef.Subresource == "status" && strings.HasPrefix(e.User.Username, "system:node:"):
			key = "status"
		case e.ObjectRef.Resource == "subnetleases" && e.Verb == "create" && e.ObjectRef.Name == "10-42-255-50-32":
			key = "lease"
		default:
			continue
		}
		if key == "status" && (found[key].what != "" || at.Before(sandbox)) {
			continue
		}
		found[key] = moment{"API server: " + key, at}
	}
	return found
}

// runtimeMoments are from containerd's log.
func (s *suite) runtimeMoments(t *testing.T, pod *corev1.Pod) map[string]moment {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.LogDir(), pod.Spec.NodeName+"-containerd.log"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^time="([^"]+)" level=info msg="RunPodSandbox for &PodSandboxMetadata\{Name:` + pod.Name + `,Uid:` + string(pod.UID) + `,[^"]*"`)
	found := map[string]moment{}
	for _, m := range line.FindAllSubmatch(text, -1) {
		key := "RunPodSandbox"
		if bytes.Contains(m[0], []byte("returns sandbox id")) {
			key = "returns sandbox id"
		}
		at, err := time.Parse(time.RFC3339Nano, string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		found[key] = moment{"containerd: " + key, at}
	}
	return found
}

// kubeletMoment is from the kubelet's log.
func (s *suite) kubeletMoment(t *testing.T, pod *corev1.Pod) (m moment) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^I(\d{4} [\d:.]+) .*Observed pod startup duration" pod="` + pod.Namespace + `/` + pod.Name + `"`)
	await(t, 20*time.Second, "the kubelet's line about the pod", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(s.LogDir(), pod.Spec.NodeName+"-kubelet.log"))
		if err != nil {
			return err
		}
		found := line.FindSubmatch(text)
		if found == nil {
			return fmt.Errorf("there is none")
		}
		at, err := time.ParseInLocation("2006 0102 15:04:05.000000", fmt.Sprint(time.Now().Year())+" "+string(found[1]), time.Local)
		m = moment{"kubelet: observed pod startup duration", at}
		return err
	})
	return m
}

// checkTrace: the collector has the spans of docs/sequence.md, each below the
// right one.
func (s *suite) checkTrace(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	parents := map[string]string{
		"pod start": "", "schedule": "pod start", "kubelet and runtime": "pod start", "weft-cni ADD": "pod start", "agent ADD": "weft-cni ADD",
		"pod": "agent ADD", "reserve": "agent ADD", "announce": "agent ADD", "kernel": "agent ADD", "answer": "agent ADD",
		"runtime, kubelet and watch": "pod start", "containers and readiness": "pod start",
	}
	await(t, 30*time.Second, "the trace", func(context.Context) error {
		spans := s.traces.of(string(pod.UID))
		for name, parent := range parents {
			span := spans[name]
			switch {
			case span == nil:
				return fmt.Errorf("there is no span %q among %d", name, len(spans))
			case parent == "" && len(span.GetParentSpanId()) > 0:
				return fmt.Errorf("span %q has a parent", name)
			case parent != "" && !bytes.Equal(span.GetParentSpanId(), spans[parent].GetSpanId()):
				return fmt.Errorf("span %q is not below %q", name, parent)
			case span.GetStartTimeUnixNano() > span.GetEndTimeUnixNano():
				return fmt.Errorf("span %q ends before it begins", name)
			}
		}
		return nil
	})
}
