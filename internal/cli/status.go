// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/inspect"
	"weft.dev/weft/internal/report"
)

func newStatusCommand() *cobra.Command {
	var s stateFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show in one line per subsystem whether this node can serve pods; exit 1 if not",
		Long: `Show in one line per subsystem whether this node can serve pods; exit 1 if not.

The agent says how it fares with registry, leases and each kind of kernel
object; without it, what can be seen without it is shown. With --wait nothing
is shown but what is still missing at the end of that time: the command returns
as soon as the agent serves and everything that it keeps is in sync.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait > 0 {
				return waitForSync(cmd, &s, wait)
			}
			rows := inspect.Status(s.node(), time.Now())
			if err := print(cmd, &s, rows); err != nil {
				return err
			}
			if slices.ContainsFunc(rows, func(r report.Subsystem) bool { return r.State == report.Bad }) {
				return errors.New("not all is well: see above")
			}
			return nil
		},
	}
	s.add(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait this long at the most until everything is in sync; show only what is missing then")
	return cmd
}

func waitForSync(cmd *cobra.Command, s *stateFlags, most time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), most)
	defer cancel()
	missing := inspect.Wait(ctx, s.node())
	if len(missing) == 0 {
		return nil
	}
	if err := print(cmd, s, missing); err != nil {
		return err
	}
	return fmt.Errorf("not in sync after %s: see above", most)
}
