// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft.dev/weft/internal/kubectl"
	"weft.dev/weft/internal/view"
)

// IsKubectlPlugin reports whether the program was started as `kubectl weft`, or to
// complete its command line: kubectl finds plugins by the names of the files,
// kubectl-weft and kubectl_complete-weft.
func IsKubectlPlugin(argv0 string) bool {
	name := filepath.Base(argv0)
	return strings.HasPrefix(name, "kubectl-") || strings.HasPrefix(name, kubectlCompletes)
}

const kubectlCompletes = "kubectl_complete-"

// onNodes is kubectl.Run, or a test's.
type onNodes func(ctx context.Context, t kubectl.Target, command kubectl.Command, stdout, stderr io.Writer) error

// NewKubectlPlugin returns the root command of `kubectl weft`. version is what
// --version prints.
func NewKubectlPlugin(version string) *cobra.Command {
	root := newKubectlPlugin(version, kubectl.Run)
	if strings.HasPrefix(filepath.Base(os.Args[0]), kubectlCompletes) {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	return root
}

// newKubectlPlugin makes the operator's commands, as they are on a node, run on
// nodes instead. Those that are for one machine only (agent, lab, install) are left
// out.
func newKubectlPlugin(version string, run onNodes) *cobra.Command {
	var t kubectl.Target
	root := &cobra.Command{
		Use:         "kubectl-weft",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl weft"},
		Short:       "Run the operator's commands of weft on the nodes of a cluster",
		Long: `Run the operator's commands of weft on the nodes of a cluster: on one, or on all.

Each command is executed in the agent's pod of the node. Without --node, "pod show"
and "pod trace" of NAMESPACE/NAME ask the node of that pod, and everything else asks
all nodes, which answer in the order of their names. Tables have a heading "==> NODE"
for each; with -o json or yaml it is one list, of {node, output, error}. Exit code 1:
a node could not be asked, or its command failed.`,
		Example: `  kubectl weft status
  kubectl weft pod trace shop/web-0
  kubectl weft pod list --node worker-3
  kubectl weft status -o json | jq '.[] | select(.error)'`,
		Version:           version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // kubectl's own is extended
	}
	flags := root.PersistentFlags()
	flags.StringVar(&t.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: as kubectl)")
	flags.StringVar(&t.Context, "context", "", "context of the kubeconfig (default: the current one)")
	flags.StringVarP(&t.Namespace, "namespace", "n", "", "namespace that the agents run in (default: "+kubectl.DefaultNamespace+", else the only one that has agents)")
	flags.StringVar(&t.Node, "node", "", "only on this node")
	flags.DurationVar(&t.Timeout, "timeout", 15*time.Second, "how long the API server, and then each node, may take to answer; 0: no limit")
	_ = root.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		names, err := kubectl.Nodes(cmd.Context(), t)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	for _, c := range []*cobra.Command{newStatusCommand(), newNodeCommand(), newLeaseCommand(), newRouteCommand(), newPodCommand(), newIPAMCommand()} {
		runOnNodes(c, &t, run)
		root.AddCommand(c)
	}
	return root
}

// runOnNodes makes a command and those below it run on nodes.
func runOnNodes(c *cobra.Command, t *kubectl.Target, run onNodes) {
	if f := c.Flags().Lookup(repairFlag); f != nil {
		f.Hidden = true
	}
	c.Example = strings.ReplaceAll(c.Example, "  weft ", "  kubectl weft ")
	for _, sub := range c.Commands() {
		runOnNodes(sub, t, run)
	}
	if c.HasSubCommands() {
		return // it shows help
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		target := *t
		switch {
		case target.Timeout < 0:
			return fmt.Errorf("--timeout %s: want a duration, or 0 for no limit", target.Timeout)
		case target.Node == "" && cmd.Name() == "release":
			return fmt.Errorf("%s changes what a node has: say which by --node", cmd.CommandPath())
		case isSet(cmd, repairFlag):
			return fmt.Errorf("--%s wants the agent stopped, in whose pod this would run: stop it and run weft ipam check --%[1]s on the node", repairFlag)
		}
		command, err := toCommand(cmd, args)
		if err != nil {
			return err
		}
		if wait, err := cmd.Flags().GetDuration("wait"); err == nil && target.Timeout > 0 {
			target.Timeout += wait
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop) // the second time ends it at once
		return run(ctx, target, command, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
}

func isSet(cmd *cobra.Command, flag string) bool {
	set, err := cmd.Flags().GetBool(flag)
	return err == nil && set
}

// toCommand is the command line for the nodes: all that is not the plugin's own.
func toCommand(cmd *cobra.Command, args []string) (kubectl.Command, error) {
	c := kubectl.Command{Operands: args}
	for at := cmd; at.HasParent(); at = at.Parent() {
		c.Args = append([]string{at.Name()}, c.Args...)
	}
	own := cmd.Root().PersistentFlags()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "output":
			c.Format = f.Value.String()
		case own.Lookup(f.Name) == nil:
			c.Args = append(c.Args, "--"+f.Name+"="+f.Value.String())
		}
	})
	if c.Format != "" {
		if _, err := view.ParseFormat(c.Format); err != nil {
			return c, err
		}
	}
	if cmd.Parent().Name() == "pod" && len(args) == 1 {
		c.Pod = args[0]
	}
	return c, nil
}
