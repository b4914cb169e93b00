// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of weft: thin commands over the packages
// that do the work.
package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/inspect"
	"weft.dev/weft/internal/view"
)

// New returns the root command. version is what --version prints.
func New(version string) *cobra.Command {
	root := &cobra.Command{
		Use:           "weft",
		Short:         "Pod networking for Kubernetes: the node agent and the operator's commands",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newAgentCommand(), newStatusCommand(), newNodeCommand(), newLeaseCommand(), newRouteCommand(),
		newPodCommand(), newIPAMCommand(), newLabCommand(), newInstallCommand(), newUninstallCommand())
	return root
}

// group returns a command that only has others below it. Without a function of
// its own cobra would answer a misspelt one with help and success.
func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// stateFlags are the flags of every command that looks at a node's state.
type stateFlags struct {
	dir    string
	socket string
	output string
}

func (s *stateFlags) add(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&s.dir, "state-dir", v1alpha1.DefaultStateDir, "state directory of the agent or the thin plugin")
	cmd.PersistentFlags().StringVar(&s.socket, "socket", "", "the agent's socket (default agent.sock in the state directory)")
	cmd.PersistentFlags().StringVarP(&s.output, "output", "o", string(view.Table), "output format: table, json or yaml")
}

func (s *stateFlags) node() inspect.Node {
	return inspect.Node{StateDir: filepath.Clean(s.dir), Socket: s.socket}
}

// print writes rows to the command's output in the chosen format.
func print[R view.Row](cmd *cobra.Command, s *stateFlags, rows []R) error {
	f, err := view.ParseFormat(s.output)
	if err != nil {
		return err
	}
	return view.Write(cmd.OutOrStdout(), f, rows)
}
