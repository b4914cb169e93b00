// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/install"
)

func newUninstallCommand() *cobra.Command {
	var s stateFlags
	var o install.Options
	var stay bool
	n := install.Node{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove everything from this node that Weft ever made on it",
		Long: `Remove everything from this node that Weft ever made on it.

Stop the agent and drain the node first: while pods have interfaces of Weft's
nothing is removed, because they need the plugin and the network configuration
to terminate. Then the configuration goes, routes, links, nftables tables, the
state directory, and the plugin last. What somebody else made stays, and so do
kernel parameters (IP forwarding), because others may rely on them. Objects of
the cluster are not touched.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			n.StateDir, n.Socket = filepath.Clean(s.dir), s.socket
			if err := uninstall(ctx, cmd, &s, n, o); err != nil || !stay {
				return err
			}
			<-ctx.Done()
			return nil
		},
	}
	s.add(cmd)
	cmd.Flags().StringVar(&n.ConfFile, "conf-file", v1alpha1.DefaultConfFile, "the network configuration list that the agent wrote")
	cmd.Flags().StringVar(&n.BinDir, "bin-dir", defaultBinDir, "the runtime's directory of CNI plugins")
	cmd.Flags().DurationVar(&o.Wait, "wait", 0, "wait this long at the most for the agent to stop and the pods to go")
	cmd.Flags().BoolVar(&o.Force, "force", false, "remove the interfaces of pods that are still there; they are cut off for good")
	cmd.Flags().BoolVar(&stay, "stay", false, "when done wait for SIGTERM: for a DaemonSet, which would start it again")
	return cmd
}

func uninstall(ctx context.Context, cmd *cobra.Command, s *stateFlags, n install.Node, o install.Options) error {
	log, _ := newLogger(cmd.ErrOrStderr(), v1alpha1.LogConfiguration{Level: "info"})
	outcomes, err := n.Uninstall(ctx, o, log)
	if len(outcomes) > 0 || err == nil {
		if perr := print(cmd, s, outcomes); err == nil {
			err = perr
		}
	}
	return err
}
