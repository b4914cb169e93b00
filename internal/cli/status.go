// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/inspect"
)

func newStatusCommand() *cobra.Command {
	var s stateFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show in one line per subsystem whether this node can serve pods; exit 1 if not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows := inspect.Status(s.node(), time.Now())
			if err := print(cmd, &s, rows); err != nil {
				return err
			}
			for _, r := range rows {
				if r.State == inspect.Bad {
					return errors.New("not all is well: see above")
				}
			}
			return nil
		},
	}
	s.add(cmd)
	return cmd
}
