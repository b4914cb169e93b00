// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// tally is how it went on the nodes.
type tally struct {
	pod      string // that was looked for on all nodes; "": none
	asked    int    // nodes
	answered int    // of them, without an error
	failed   []string
	barred   []string // of them, those on which the user may not run commands
	ban      error    // in the API server's words
	none     []string // nodes without an agent
	unknown  []ignorance
}

// ignorance is what nodes say, in the same words, that know nothing of a pod.
type ignorance struct {
	text  string
	nodes []string
}

// count adds an answer, and returns what its node is to be reproached with. A pod
// is known to one node only: what the commands of all others say is kept for the
// end.
func (t *tally) count(a *answer) string {
	t.asked++
	failure := a.failure()
	switch {
	case errors.Is(a.err, errNoPod):
		t.asked--
		t.none = append(t.none, a.agent.node)
	case failure == "":
		t.answered++
	case apierrors.IsForbidden(a.err):
		t.failed, t.barred, t.ban = append(t.failed, a.agent.node), append(t.barred, a.agent.node), a.err
		return ""
	case t.pod != "" && a.refused():
		i := slices.IndexFunc(t.unknown, func(u ignorance) bool { return u.text == failure })
		if i < 0 {
			i = len(t.unknown)
			t.unknown = append(t.unknown, ignorance{text: failure})
		}
		t.unknown[i].nodes = append(t.unknown[i].nodes, a.agent.node)
		return ""
	default:
		t.failed = append(t.failed, a.agent.node)
	}
	return failure
}

// summed reports whether a node is one of several of which the same is to be said,
// once: that they know nothing of the pod, that they have no agent, or that the user
// may not ask them.
func (t *tally) summed(a *answer) bool {
	return t.pod != "" && a.refused() || errors.Is(a.err, errNoPod) || apierrors.IsForbidden(a.err)
}

// banned reports whether the user may run commands on no node.
func (t *tally) banned() bool { return t.ban != nil && len(t.barred) == t.asked }

// conclude prints what is to be said of several nodes, and returns the error.
func (t *tally) conclude(c *cluster, stderr io.Writer) error {
	if t.banned() {
		return c.explain(t.ban)
	}
	if t.ban != nil {
		why := t.ban
		if t.answered == 0 {
			why = c.explain(why)
		}
		fmt.Fprintf(stderr, "%s: %s\n", nodes(t.barred), why)
	}
	for _, u := range t.unknown {
		fmt.Fprintf(stderr, "%s: %s\n", nodes(u.nodes), u.text)
	}
	if len(t.none) > 0 {
		fmt.Fprintf(stderr, "not asked: %s: %s\n", nodes(t.none), noAgent)
	}
	switch {
	case len(t.failed) > 0:
		return fmt.Errorf("%d of %d nodes failed: %s", len(t.failed), t.asked, names(t.failed))
	case t.answered == 0 && len(t.unknown) > 0:
		return fmt.Errorf("none of %d nodes has an answer about %s", t.asked, t.pod)
	}
	return nil
}

// printPlain prints the answer of the only node, as it is.
func (c *cluster) printPlain(a *answer, stdout, stderr io.Writer) error {
	<-a.done
	_, _ = stdout.Write(a.stdout.take())
	if apierrors.IsForbidden(a.err) {
		return c.explain(a.err)
	}
	if failure := a.failure(); failure != "" {
		return fmt.Errorf("node %s: %s", a.agent.node, failure)
	}
	_, _ = stderr.Write(a.stderr.take())
	return nil
}

// printTables prints each answer as soon as it and those before it are there.
func (c *cluster) printTables(ctx context.Context, answers []*answer, pod string, stdout, stderr io.Writer) error {
	t := tally{pod: pod}
	for _, a := range answers {
		<-a.done
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %d of %d nodes have answered", errInterrupted, t.asked, len(answers))
		}
		failure := t.count(a)
		if t.summed(a) {
			continue
		}
		fmt.Fprintf(stdout, "==> %s\n", a.agent.node)
		text := a.stdout.take()
		_, _ = stdout.Write(text)
		if len(text) > 0 && text[len(text)-1] != '\n' { // it was cut off
			fmt.Fprintln(stdout)
		}
		if failure != "" {
			fmt.Fprintf(stderr, "node %s: %s\n", a.agent.node, failure)
		}
		a.printRemarks(stderr)
	}
	return t.conclude(c, stderr)
}

// nodes and names list nodes for people: there may be thousands.
func nodes(list []string) string {
	if len(list) == 1 {
		return "node " + list[0]
	}
	return "nodes " + names(list)
}

func names(list []string) string {
	const most = 10
	if more := len(list) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), more)
	}
	return strings.Join(list, ", ")
}
