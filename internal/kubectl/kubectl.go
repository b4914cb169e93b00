// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Target says which cluster and which of its nodes.
type Target struct {
	Kubeconfig string // file; "": as kubectl finds it
	Context    string // "": the kubeconfig's current one
	Namespace  string // that the agents run in; "": DefaultNamespace, else the only one that has agents
	Node       string // "": the one that Command.Pod runs on, or all
	// Timeout is how long one node may take to answer, and how long the API server
	// may take to say where the agents are; 0: as long as they like.
	Timeout time.Duration
}

// Command is what to run on the nodes.
type Command struct {
	Args     []string // of weft: the command's names and flags, without --output
	Operands []string // what the command is about, as the user wrote it
	Format   string   // of the output: table, json or yaml; "": the command's default, a table
	Pod      string   // that it is about, as the user names it; "": none
}

// DefaultNamespace is the one that the manifests use.
const DefaultNamespace = "kube-system"

// Selector finds the agents' pods: the labels that the manifests give them.
const Selector = "app.kubernetes.io/name=weft,app.kubernetes.io/component=agent"

// Run executes a command on the nodes and prints what they answer. It returns an
// error if a node could not be asked, or answered with one. If the node of a pod
// is not known, that holds for nodes that could not be asked, and if no node
// knows the pod.
func Run(ctx context.Context, t Target, command Command, stdout, stderr io.Writer) error {
	c, err := connect(t)
	if err != nil {
		return err
	}
	var s selection
	err = within(ctx, t.Timeout, func(ctx context.Context) (err error) {
		s, err = c.choose(ctx, command.Pod)
		return err
	})
	if err != nil {
		return c.explain(err)
	}
	if s.note != "" {
		fmt.Fprintln(stderr, s.note)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // whoever is still being asked when nobody needs the answer
	argv := command.Argv(!s.one)
	answers := collect(ctx, s.agents, t.Timeout, func(ctx context.Context, a agent, stdout, stderr io.Writer) error {
		return c.ask(ctx, a, argv, stdout, stderr)
	})
	switch {
	case s.one:
		return c.printPlain(answers[0], stdout, stderr)
	case command.structured():
		return c.printDocument(answers, command, stdout, stderr)
	default:
		return c.printTables(ctx, answers, command.Pod, stdout, stderr)
	}
}

// structured reports whether the output is for programs.
func (c Command) structured() bool { return c.Format == "json" || c.Format == "yaml" }

// Argv is the command line for a node. Answers that become part of one document
// are wanted as JSON, of which YAML is made afterwards.
func (c Command) Argv(merge bool) []string {
	argv := append([]string{"/weft"}, c.Args...)
	switch {
	case c.structured() && merge:
		argv = append(argv, "--output=json")
	case c.Format != "":
		argv = append(argv, "--output="+c.Format)
	}
	if len(c.Operands) > 0 {
		argv = append(append(argv, "--"), c.Operands...)
	}
	return argv
}
