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
func TestTablesAsTheyCome(t *testing.T) {
	const timeout = 15 * time.Second
	type node struct {
		name  string
		takes time.Duration
	}
	many := []node{{"n00", time.Second}}
	want := "1 ==> n00, 1 n00"
	for i := range 2 * atOnce {
		many = append(many, node{fmt.Sprintf("n%02d", i+1), 0})
		want += fmt.Sprintf(", 1 ==> n%02d, 1 n%02[1]d", i+1)
	}
	for name, c := range map[string]struct {
		nodes   []node
		timeout time.Duration
		stdout  string // lines "SECONDS TEXT"
		stderr  string
		err     string
	}{
		"in order": {[]node{{"a", 2 * time.Second}, {"b", time.Second}, {"c", 3 * time.Second}}, timeout,
			"2 ==> a, 2 a, 2 ==> b, 2 b, 3 ==> c, 3 c", "", ""},
		"dead": {[]node{{"a", time.Second}, {"dead", time.Hour}, {"z", time.Second}}, timeout,
			"1 ==> a, 1 a, 15 ==> dead, 15 dead, 15 ==> z, 15 z",
			"node dead: no complete answer within 15s (--timeout): see whether the node is Ready: kubectl get nodes\n", "1 of 3 nodes failed: dead"},
		"as it likes": {[]node{{"a", time.Hour}}, 0, "3600 ==> a, 3600 a", "", ""},
		"many":        {many, timeout, want, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var agents []agent
				takes := map[string]time.Duration{}
				for _, n := range c.nodes {
					agents = append(agents, agent{node: n.name, pod: &corev1.Pod{}})
					takes[n.name] = n.takes
				}
				stdout, stderr := &printed{start: time.Now()}, &strings.Builder{}
				answers := collect(t.Context(), agents, c.timeout, func(ctx context.Context, a agent, out, _ io.Writer) error {
					fmt.Fprintln(out, a.node) // which it says at once
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(takes[a.node]):
						return nil
					}
				})
				err := new(cluster).printTables(t.Context(), answers, "", stdout, stderr)
				if got := strings.Join(stdout.lines, ", "); got != c.stdout {
					t.Errorf("standard output is %q, want %q", got, c.stdout)
				}
				if stderr.String() != c.stderr {
					t.Errorf("standard error is %q, want %q", stderr, c.stderr)
				}
				if got := fmt.Sprint(err); err == nil && c.err != "" || err != nil && got != c.err {
					t.Errorf("%v, want %q", err, c.err)
				}
			})
		})
	}
}

// Who interrupts is told neither of a timeout nor of every node that is left.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	agents := []agent{{node: "a", pod: &corev1.Pod{}}, {node: "b", pod: &corev1.Pod{}}}
	late := make(chan io.Writer, len(agents))
	answers := collect(ctx, agents, time.Hour, func(ctx context.Context, a agent, out, _ io.Writer) error {
		if a.node == "a" {
			return nil
		}
		<-ctx.Done()
		late <- out
		return ctx.Err()
	})
	<-answers[0].done
	cancel()
	var stdout, stderr strings.Builder
	err := new(cluster).printDocument(answers, Command{Format: "json"}, &stdout, &stderr)
	if err == nil || !strings.Contains(stdout.String(), `"error": "interrupted"`) || strings.Count(stdout.String(), "error") != 1 {
		t.Errorf("%v, document %s", err, &stdout)
	}
	stdout.Reset()
	err = new(cluster).printTables(ctx, answers, "", &stdout, &stderr)
	if !errors.Is(err, errInterrupted) || stdout.Len() > 0 {
		t.Errorf("%v after %q, want it interrupted", err, &stdout)
	}
	if _, err := (<-late).Write([]byte("x")); err == nil {
		t.Error("what comes after the answer was printed is kept for nobody")
	}
}

// printed notes when what was printed.
type printed struct {
	start time.Time
	lines []string
}

func (p *printed) Write(text []byte) (int, error) {
	p.lines = append(p.lines, fmt.Sprintf("%.0f %s", time.Since(p.start).Seconds(), strings.TrimRight(string(text), "\n")))
	return len(text), nil
}
