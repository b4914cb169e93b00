// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
)

// The client's heartbeat sees only at its next beat, 5 s later, that the
// connection is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"))
}

// Nodes answer after these times, "dead" never does; an answer is printed as
// soon as it and those before it are there.
func TestCollect(t *testing.T) {
	const timeout = 15 * time.Second
	type node struct {
		name  string
		takes time.Duration
		err   error
	}
	failed := errors.New("command terminated with exit code 1")
	many := []node{{"n00", time.Second, nil}}
	for i := range 2 * atOnce {
		many = append(many, node{fmt.Sprintf("n%02d", i+1), 0, nil})
	}
	for name, c := range map[string]struct {
		nodes   []node
		timeout time.Duration
		stdout  string // lines "SECONDS NODE"
		heads   bool
		err     string
	}{
		"one":         {[]node{{"a", 2 * time.Second, nil}}, timeout, "2 a", false, ""},
		"in order":    {[]node{{"a", 2 * time.Second, nil}, {"b", time.Second, nil}, {"c", 3 * time.Second, nil}}, timeout, "2 a, 2 b, 3 c", true, ""},
		"dead":        {[]node{{"a", time.Second, nil}, {"dead", time.Hour, nil}, {"z", time.Second, nil}}, timeout, "1 a, 15 dead, 15 z", true, "node dead: no complete answer within 15s"},
		"as it likes": {[]node{{"a", time.Hour, nil}}, 0, "3600 a", false, ""},
		"failed":      {[]node{{"a", 0, failed}, {"b", 0, nil}}, timeout, "0 a, 0 b", true, "node a: command terminated"},
		"many":        {many, timeout, "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pods []corev1.Pod
				takes := map[string]node{}
				for _, n := range c.nodes {
					pods = append(pods, corev1.Pod{Spec: corev1.PodSpec{NodeName: n.name}})
					takes[n.name] = n
				}
				stdout, stderr := &printed{start: time.Now()}, &strings.Builder{}
				err := collect(t.Context(), pods, c.timeout, stdout, stderr, func(ctx context.Context, pod *corev1.Pod, out, _ io.Writer) error {
					n := takes[pod.Spec.NodeName]
					fmt.Fprint(out, n.name) // which it says at once
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(n.takes):
						return n.err
					}
				})
				if got := strings.Join(stdout.lines, ", "); c.stdout != "" && got != c.stdout || len(stdout.lines) != len(pods) {
					t.Errorf("standard output is %q, want %q", got, c.stdout)
				}
				heads := ""
				for _, n := range c.nodes {
					heads += "==> " + n.name + "\n"
				}
				if !c.heads {
					heads = ""
				}
				if stderr.String() != heads {
					t.Errorf("standard error is %q, want %q", stderr, heads)
				}
				if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
			})
		})
	}
}

// Who interrupts is not told of a timeout.
func TestCollectInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pods := []corev1.Pod{{Spec: corev1.PodSpec{NodeName: "a"}}}
	var late io.Writer
	err := collect(ctx, pods, time.Hour, io.Discard, io.Discard, func(ctx context.Context, _ *corev1.Pod, out, _ io.Writer) error {
		late = out
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "timeout") {
		t.Errorf("%v, want it canceled", err)
	}
	if _, err := late.Write([]byte("x")); err == nil {
		t.Error("what comes after the answer was printed is kept for nobody")
	}
}

// printed notes when what was printed.
type printed struct {
	start time.Time
	lines []string
}

func (p *printed) Write(text []byte) (int, error) {
	p.lines = append(p.lines, fmt.Sprintf("%.0f %s", time.Since(p.start).Seconds(), text))
	return len(text), nil
}
