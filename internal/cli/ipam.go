// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/inspect"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/repair"
	"weft.dev/weft/internal/view"
)

const repairFlag = "repair"

func newIPAMCommand() *cobra.Command {
	var s stateFlags
	cmd := group("ipam", "Show, check and repair the addresses of this node")
	s.add(cmd)
	cmd.AddCommand(newIPAMShow(&s), newIPAMCheck(&s), newIPAMRelease(&s))
	return cmd
}

func newIPAMShow(s *stateFlags) *cobra.Command {
	var addresses bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show how full the ranges are, or every address",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := journal.Read(s.dir, facts.New)
			if err != nil {
				return err
			}
			if addresses {
				rows, err := inspect.Addresses(f, time.Now())
				if err != nil {
					return err
				}
				return print(cmd, s, rows)
			}
			rows, err := inspect.Ranges(f, time.Now())
			if err != nil {
				return err
			}
			return print(cmd, s, rows)
		},
	}
	cmd.Flags().BoolVar(&addresses, "addresses", false, "list every address that is used or was released")
	return cmd
}

// errProblems makes `weft ipam check` exit non-zero.
var errProblems = errors.New("problems found: see above")

func newIPAMCheck(s *stateFlags) *cobra.Command {
	var fix, history bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare records, namespaces and interfaces; exit 1 if they disagree",
		Long: `Compare records, namespaces and interfaces; exit 1 if they disagree.

Garbage collection repairs everything by itself except a damaged journal:
--repair rebuilds that from the lines that are good and from the interfaces
that exist, and keeps the damaged file aside. --history shows what garbage
collection has done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case fix:
				report, err := repair.Journal(cmd.Context(), s.node().StateDir)
				for _, line := range report {
					fmt.Fprintln(cmd.OutOrStdout(), line)
				}
				return err
			case history:
				rows, err := inspect.History(s.dir)
				if err != nil {
					return err
				}
				return print(cmd, s, rows)
			}
			rows, err := inspect.Check(s.node(), time.Now())
			if err != nil {
				return err
			}
			if err := print(cmd, s, rows); err != nil {
				return err
			}
			if err := printLately(cmd, s); err != nil {
				return err
			}
			if len(rows) > 0 {
				return errProblems
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, repairFlag, false, "rebuild a damaged journal; the agent must be stopped")
	cmd.Flags().BoolVar(&history, "history", false, "show what garbage collection did")
	return cmd
}

// printLately adds to the table what garbage collection did last: JSON and YAML
// have one kind of row, and --history for this one.
func printLately(cmd *cobra.Command, s *stateFlags) error {
	const most = 5
	rows, err := inspect.History(s.dir)
	if err != nil || len(rows) == 0 || s.output != string(view.Table) {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "\nGarbage collection, lately (all of it: --history):")
	return view.Write(cmd.OutOrStdout(), view.Table, rows[max(0, len(rows)-most):])
}

func newIPAMRelease(s *stateFlags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "release ADDRESS|POD|KEY",
		Short: "Release an attachment that nobody will DEL any more",
		Long: `Release an attachment that nobody will DEL any more: its interface is removed
and its addresses are freed. One whose sandbox lives is refused, unless --force.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			released, err := repair.Release(cmd.Context(), s.node(), args[0], force)
			for _, key := range released {
				fmt.Fprintln(cmd.OutOrStdout(), "released", key)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "release it although its sandbox lives: the pod loses its network")
	return cmd
}
