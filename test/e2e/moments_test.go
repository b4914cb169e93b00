// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/test/cluster"
)

// moment is when something happened. The clock rounds it down to a multiple of
// coarse.
type moment struct {
	at     time.Time
	coarse time.Duration
}

// story is what happened, by who says so and what: "containerd: RunPodSandbox".
type story map[string]moment

// first notes a moment, of several the first.
func (st story) first(what string, m moment) {
	if had, ok := st[what]; !ok || m.at.Before(had.at) {
		st[what] = m
	}
}

// has says which of these moments nobody tells of.
func (st story) has(names ...[]string) error {
	var missing []string
	for _, name := range slices.Concat(names...) {
		if _, ok := st[name]; !ok {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return fmt.Errorf("nobody tells of %q; there are %q", missing, slices.Sorted(maps.Keys(st)))
	}
	return nil
}

// inOrder: each moment is not before the one before it.
func (st story) inOrder(t *testing.T, names []string) {
	t.Helper()
	var text strings.Builder
	good := true
	for i, name := range names {
		m, mark := st[name], ""
		if i > 0 && m.at.Add(m.coarse).Before(st[names[i-1]].at) {
			good, mark = false, "  <-- before the one above"
		}
		fmt.Fprintf(&text, "%s  %s%s\n", m.at.UTC().Format("15:04:05.000000"), name, mark)
	}
	t.Logf("\n%s", text.String())
	if !good {
		t.Error("it did not happen in this order: see above")
	}
}

// testimony is how a log tells of moments.
type testimony struct {
	who    string
	file   string
	layout string // of the time
	coarse time.Duration
	// lines tell what they are about; group 1 is the time.
	lines map[string]string
}

// logged adds what a log tells.
func (st story) logged(from testimony) error {
	text, err := os.ReadFile(from.file)
	if err != nil {
		return err
	}
	for what, line := range from.lines {
		for _, m := range regexp.MustCompile("(?m)^"+line).FindAllSubmatch(text, -1) {
			at, err := time.ParseInLocation(from.layout, string(m[1]), time.Local)
			if err != nil {
				return err
			}
			if at.Year() == 0 { // the kubelet does not write it
				at = at.AddDate(time.Now().Year(), 0, 0)
			}
			st.first(from.who+": "+what, moment{at, from.coarse})
		}
	}
	return nil
}

// sandbox is the id of the sandbox that a pod runs in.
func (s *suite) sandbox(pod *corev1.Pod) (string, error) {
	text, err := os.ReadFile(filepath.Join(s.LogDir(), pod.Spec.NodeName+"-containerd.log"))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`uid:\\"` + string(pod.UID) + `\\" .*returns sandbox id \\"([0-9a-f]+)`).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("containerd's log has no sandbox for pod %s/%s", pod.Namespace, pod.Name)
	}
	return string(m[1]), nil
}

// tell gathers what all who took part say of the pod's start and end.
func (s *suite) tell(ctx context.Context, t *testing.T, pod *corev1.Pod) (story, error) {
	id, err := s.sandbox(pod)
	if err != nil {
		return nil, err
	}
	st := story{}
	agents, err := filepath.Glob(filepath.Join(s.host(pod).Root, "var/log/pods/kube-system_weft-*/agent/*.log"))
	if err != nil {
		return nil, err
	}
	for _, file := range agents {
		err = errors.Join(err, st.logged(agentLines(file, id)))
	}
	log := filepath.Join(s.LogDir(), pod.Spec.NodeName)
	err = errors.Join(err, st.logged(runtimeLines(log+"-containerd.log", pod, id)), st.logged(shimLines(log+"-containerd.log", id)),
		st.logged(kubeletLines(log+"-kubelet.log", pod)), st.steps(ctx, s, pod, id))
	st.requests(s.audit(t), pod)
	return st, err
}

// steps adds those of `weft pod trace`.
func (st story) steps(ctx context.Context, s *suite, pod *corev1.Pod, id string) error {
	var rows []report.Step
	if err := s.weftOn(ctx, s.host(pod), &rows, "pod", "trace", pod.Namespace+"/"+pod.Name); err != nil {
		return err
	}
	for _, r := range rows {
		if r.ContainerID != id {
			continue
		}
		m := moment{at: r.At}
		if r.Whole {
			m.coarse = time.Second
		}
		st.first("trace: "+r.Verb+" "+r.Step, m)
	}
	return nil
}

// requests adds those to the API server: of the kubelet's writes of the status
// the first after the sandbox was there.
func (st story) requests(audit []entry, pod *corev1.Pod) {
	for _, e := range audit {
		o, kubelet := e.ObjectRef, strings.HasPrefix(e.User.Username, "system:node:")
		what := ""
		switch ours := o.Resource == "pods" && o.Namespace == pod.Namespace && o.Name == pod.Name; {
		case ours && e.Verb == "create" && o.Subresource == "":
			what = "create the pod"
		case ours && e.Verb == "create" && o.Subresource == "binding":
			what = "bind it"
		case ours && kubelet && o.Subresource == "status" && !e.RequestReceivedTimestamp.Before(st["containerd: RunPodSandbox returns"].at):
			what = "its status, from the kubelet"
		case ours && e.Verb == "delete" && !kubelet:
			what = "delete the pod"
		case ours && e.Verb == "delete":
			what = "delete it for good, from the kubelet"
		case o.Resource == "subnetleases" && e.Verb == "create":
			what = "lease " + o.Name
		default:
			continue
		}
		st.first("API server: "+what, moment{at: e.RequestReceivedTimestamp})
	}
}

func agentLines(file, id string) testimony {
	served := func(verb string) string {
		return `\S+ std\w+ F \{"time":"([^"]+)","level":"INFO","msg":"call served","verb":"` + verb + `",.*"container":"` + id + `"`
	}
	return testimony{"agent's log", file, time.RFC3339Nano, 0, map[string]string{"ADD served": served("ADD"), "DEL served": served("DEL")}}
}

func shimLines(file, id string) testimony {
	began := func(verb string) string { return `(\S+) weft-cni verb=` + verb + ` .*container=` + id + ` .* ok$` }
	return testimony{"weft-cni", file, time.RFC3339Nano, time.Millisecond, map[string]string{"ADD": began("ADD"), "DEL": began("DEL")}}
}

func runtimeLines(file string, pod *corev1.Pod, id string) testimony {
	info := `time="([^"]+)" level=info msg="`
	run := info + `RunPodSandbox for .*uid:\\"` + string(pod.UID) + `\\" .*`
	container := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	return testimony{"containerd", file, time.RFC3339Nano, 0, map[string]string{
		"RunPodSandbox":         run,
		"RunPodSandbox returns": run + `returns sandbox id \\"` + id,
		"StopContainer":         info + `StopContainer for \\"` + container,
		"StopPodSandbox":        info + `StopPodSandbox for \\"` + id,
		"network torn down":     info + `TearDown network for sandbox \\"` + id + `\\" successfully`,
	}}
}

func kubeletLines(file string, pod *corev1.Pod) testimony {
	at := `I(\d{4} [\d:.]+) .*\] "`
	name := pod.Namespace + `/` + pod.Name
	return testimony{"kubelet", file, "0102 15:04:05.000000", 0, map[string]string{
		"SyncLoop ADD":         at + `SyncLoop ADD" .*"` + name + `"`,
		"Creating PodSandbox":  at + `Creating PodSandbox for pod" .*pod="` + name + `"`,
		"status written":       at + `Status for pod updated successfully" .*"` + name + `".*` + regexp.QuoteMeta(pod.Status.PodIP),
		"observed pod startup": at + `Observed pod startup duration" .*pod="` + name + `"`,
		"SyncLoop DELETE":      at + `SyncLoop DELETE" .*"` + name + `"`,
		"removed from the API": at + `Pod fully terminated and removed from etcd" .*pod="` + name + `"`,
	}}
}

// verbose has a node's kubelet say as much as docs/sequence.md wants to see.
func (s *suite) verbose(t *testing.T, n *cluster.Node) {
	t.Helper()
	set := func(ctx context.Context, level string) {
		t.Helper()
		var code int
		request := s.Client().CoreV1().RESTClient().Put().Resource("nodes").Name(n.Name).SubResource("proxy").Suffix("debug/flags/v").Body([]byte(level))
		if err := request.Do(ctx).StatusCode(&code).Error(); err != nil || code != http.StatusOK {
			t.Errorf("set the kubelet's verbosity: %d, %v", code, err)
		}
	}
	set(t.Context(), "4")
	t.Cleanup(func() { set(context.Background(), "0") })
}
