// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/lab"
)

func newLabNode(f *labFlags) *cobra.Command {
	cmd := group("node", "Add, remove and readdress nodes; stop, start and kill their agents")
	cmd.AddCommand(newLabNodeAdd(f), newLabNodeAddress(f),
		onNode(f, "remove", "Make a node disappear like a machine that burns: pods and all, without a goodbye",
			func(_ context.Context, h lab.Host, node string) error { return h.RemoveNode(f.name, node) }),
		onNode(f, "start", "Start a node's agent and wait until its network is ready",
			func(ctx context.Context, h lab.Host, node string) error { return h.StartNode(ctx, f.name, node) }),
		onNode(f, "stop", "Stop a node's agent (SIGTERM); its pods stay",
			func(_ context.Context, h lab.Host, node string) error { return h.StopNode(f.name, node) }),
		onNode(f, "kill", "Kill a node's agent (SIGKILL); its pods stay",
			func(_ context.Context, h lab.Host, node string) error { return h.KillNode(f.name, node) }),
	)
	return cmd
}

func newLabNodeAdd(f *labFlags) *cobra.Command {
	var segment int
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Make a further node and wait until its network is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := f.host(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			// Interrupted, it removes what it made.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			_, err = h.AddNode(ctx, f.name, segment)
			return err
		},
	}
	cmd.Flags().IntVar(&segment, "segment", 0, "number of the node's segment (default: nodes are spread in turn)")
	return cmd
}

func newLabNodeAddress(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "address NODE ADDRESS...",
		Short:   "Give a node other addresses on its segment in place of its own, without a word to its agent",
		Example: "  weft lab node address node1 198.18.1.222 2001:db8:18:1::222",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var addrs []netip.Addr
			for _, text := range args[1:] {
				a, err := netip.ParseAddr(text)
				if err != nil {
					return fmt.Errorf("address %q: %w", text, err)
				}
				addrs = append(addrs, a)
			}
			h, err := f.host(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return h.SetNodeAddresses(f.name, args[0], addrs)
		},
	}
}

func newLabLink(f *labFlags) *cobra.Command {
	cmd := group("link", "Cut and restore the link of a node to its segment")
	cmd.AddCommand(
		onNode(f, "cut", "Cut a node's link: it loses its carrier",
			func(_ context.Context, h lab.Host, node string) error { return h.CutLink(f.name, node) }),
		onNode(f, "restore", "Restore a node's link",
			func(_ context.Context, h lab.Host, node string) error { return h.RestoreLink(f.name, node) }),
	)
	return cmd
}

// onNode returns a command that does one thing to one node.
func onNode(f *labFlags, verb, short string, do func(ctx context.Context, h lab.Host, node string) error) *cobra.Command {
	return &cobra.Command{
		Use:   fmt.Sprintf("%s NODE", verb),
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := f.host(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return do(cmd.Context(), h, args[0])
		},
	}
}
