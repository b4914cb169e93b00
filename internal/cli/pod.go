// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/inspect"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/view"
)

func newPodCommand() *cobra.Command {
	var s stateFlags
	cmd := group("pod", "Show the attachments of this node")
	s.add(cmd)
	cmd.AddCommand(newPodList(&s), newPodShow(&s), newPodTrace(&s))
	return cmd
}

func newPodList(s *stateFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List every attachment and reservation",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := journal.Read(s.dir, facts.New)
			if err != nil {
				return err
			}
			rows, err := inspect.Attachments(f, time.Now())
			if err != nil {
				return err
			}
			return print(cmd, s, rows)
		},
	}
}

func newPodShow(s *stateFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "show POD",
		Short:   "Show what a pod holds in the kernel, and why",
		Long:    "Show what a pod holds in the kernel, and why. POD is namespace/name, a name, an address, a container id or its beginning.",
		Example: "  weft pod show default/web-0\n  weft pod show 10.42.0.7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := journal.Read(s.dir, facts.New)
			if err != nil {
				return err
			}
			details, err := inspect.Details(f, s.node().StateDir, args[0], time.Now())
			if err != nil {
				return err
			}
			if s.output != string(view.Table) {
				return print(cmd, s, details)
			}
			for i, d := range details {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				if err := view.Write(cmd.OutOrStdout(), view.Table, []inspect.Attachment{d.Attachment}); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout())
				if err := view.Write(cmd.OutOrStdout(), view.Table, d.Objects); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
