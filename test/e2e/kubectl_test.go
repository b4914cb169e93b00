// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/report"
)

// plugged is kubectl with the plugin in its PATH.
type plugged struct {
	s *suite
	t *testing.T
	// path is the PATH, with the directory of the plugin only.
	path string
}

// plug copies the program into a PATH under the name that makes it a plugin.
func (s *suite) plug(t *testing.T) plugged {
	t.Helper()
	dir := t.TempDir()
	program, err := os.ReadFile(s.made.present.weft())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kubectl-weft"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return plugged{s, t, dir}
}

// run runs kubectl weft and returns standard output and standard error.
func (p plugged) run(args ...string) (stdout, stderr string, err error) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(p.t.Context(), p.s.made.kubectl, append([]string{"weft"}, args...)...)
	cmd.Env = []string{"PATH=" + p.path, "KUBECONFIG=" + p.s.Kubeconfig()}
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// ok is run where no error is expected, and nothing on standard error.
func (p plugged) ok(args ...string) string {
	p.t.Helper()
	stdout, stderr, err := p.run(args...)
	if err != nil || stderr != "" {
		p.t.Errorf("kubectl weft %s: %v, and on standard error %q\n%s", strings.Join(args, " "), err, stderr, stdout)
	}
	return stdout
}

// one decodes what must be one JSON document.
func one(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	err := d.Decode(into)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = fmt.Errorf("it goes on behind: %w", end)
		}
	}
	if err != nil {
		t.Errorf("want one JSON document: %v\n%s", err, text)
	}
}

// From anywhere that kubectl works, `kubectl weft` asks all nodes, or one, or the
// one on which a pod runs. Of a node whose agent crashes all the time it says so,
// and how the agent ended, and the others are asked nevertheless.
func testKubectl(t *testing.T, s *suite) {
	ns := s.namespace(t)
	s.start(t, sleeper(ns, "a", "node1"), sleeper(ns, "b", "node2"))
	for _, n := range s.Nodes { // or status ends with an error, as it should
		await(t, 30*time.Second, n.Name, func(ctx context.Context) error { return s.settled(ctx, n) })
	}
	k := s.plug(t)
	if status := k.ok("status"); !inThisOrder(status, "==> node1\n", "SUBSYSTEM", "==> node2\n", "SUBSYSTEM") {
		t.Errorf("kubectl weft status says\n%s\nwant a table for each node", status)
	}
	var all []struct {
		Node, Error string
		Output      []report.Subsystem
	}
	one(t, k.ok("status", "-o", "json"), &all)
	if len(all) != 2 || all[0].Node != "node1" || all[1].Node != "node2" || len(all[0].Output) < 5 || len(all[1].Output) < 5 {
		t.Errorf("kubectl weft status -o json has %+v, want what both nodes say", all)
	}
	var pods []attachment
	one(t, k.ok("pod", "list", "--node", "node2", "-o", "json"), &pods)
	has := func(pod string) bool {
		return slices.ContainsFunc(pods, func(a attachment) bool { return a.Pod == ns+"/"+pod })
	}
	if has("a") || !has("b") {
		t.Errorf("kubectl weft pod list --node node2 has %+v, want the pods of node2", pods)
	}
	if list := k.ok("pod", "list"); !inThisOrder(list, "==> node1\n", ns+"/a", "==> node2\n", ns+"/b") {
		t.Errorf("kubectl weft pod list says\n%s\nwant the pods of both nodes", list)
	}
	for _, pod := range []string{"a", "b"} {
		if trace := k.ok("pod", "trace", ns+"/"+pod); strings.Contains(trace, "==>") || !strings.Contains(trace, "answered") {
			t.Errorf("kubectl weft pod trace of pod %s says\n%s\nwant what its node tells, and nobody else", pod, trace)
		}
	}

	s.crashLoop(t, "node1")
	stdout, stderr, err := k.run("status")
	for _, want := range []string{"node node1: the agent is not running: CrashLoopBackOff, exit code 137", "logs " + s.agents(t)["node1"] + " -c agent --previous"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("kubectl weft status says on standard error\n%s\nwant %q", stderr, want)
		}
	}
	if err == nil || !inThisOrder(stdout, "==> node2\n", "SUBSYSTEM") {
		t.Errorf("kubectl weft status without one agent: %v\n%s\nwant an error, and what the other one says", err, stdout)
	}
	await(t, starting, "the agent to be back", func(ctx context.Context) error {
		return s.agentsReady(ctx, func(corev1.Pod) bool { return true })
	})
}

// crashLoop kills the node's agent until Kubernetes waits before it starts it
// again.
func (s *suite) crashLoop(t *testing.T, node string) {
	t.Helper()
	await(t, starting, "CrashLoopBackOff on "+node, func(ctx context.Context) error {
		pods, err := s.agentPods(ctx)
		if err != nil {
			return err
		}
		for _, p := range pods {
			state := p.Status.ContainerStatuses[0].State
			switch {
			case p.Spec.NodeName != node:
			case state.Waiting != nil && state.Waiting.Reason == "CrashLoopBackOff":
				return nil
			case state.Running != nil:
				return errors.Join(errors.New("it runs"), s.killAgent(ctx, &p))
			}
		}
		return errors.New("nobody waits")
	})
}

// inThisOrder says whether the text has these parts, each behind the one before.
func inThisOrder(text string, parts ...string) bool {
	for _, part := range parts {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}
