// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/lab"
	"weft.dev/weft/internal/view"
)

func newLabCheck(f *labFlags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Let every pod talk to every pod and to the outside; exit 1 if a pair cannot",
		Long: `Let every pod talk to every other pod and to the outside, in every family, by
ICMP, TCP and UDP. The other side must see the pod's own address; the outside
must see the address of the pod's node.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			as, err := view.ParseFormat(format)
			if err != nil {
				return err
			}
			h, err := f.host(nil)
			if err != nil {
				return err
			}
			start := time.Now()
			pairs, err := h.Check(cmd.Context(), f.name)
			if err != nil {
				return err
			}
			took := time.Since(start)
			if err := view.Write(cmd.OutOrStdout(), as, pairs); err != nil {
				return err
			}
			if err := lab.Judge(pairs); err != nil {
				return err
			}
			if as == view.Table {
				fmt.Fprintf(cmd.OutOrStdout(), "\nall %d pairs talk by ICMP, TCP and UDP, each seen as SOURCE says; %d ms\n", len(pairs), took.Milliseconds())
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	return cmd
}

func newLabStream(f *labFlags) *cobra.Command {
	var (
		format string
		length time.Duration
	)
	cmd := &cobra.Command{
		Use:   "stream POD POD",
		Short: "Send numbered messages from one pod to another and say what became of them",
		Long: `Send a numbered message every 2 ms from one pod to another over TCP, in each
family that both have, and say at the end how many were lost, how many came
late (more than 150 ms), how many segments TCP had to repeat, and for how long
nothing arrived. Other commands may change the lab meanwhile. Exit 1 if a message was
lost.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			as, err := view.ParseFormat(format)
			if err != nil {
				return err
			}
			h, err := f.host(nil)
			if err != nil {
				return err
			}
			// Interrupted, it says what there is to say so far.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			rows, err := h.Stream(ctx, f.name, args[0], args[1], length)
			if err != nil {
				return err
			}
			if err := view.Write(cmd.OutOrStdout(), as, rows); err != nil {
				return err
			}
			for _, r := range rows {
				if !r.OK() {
					return errors.New("messages were lost: see above")
				}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&length, "for", 5*time.Second, "how long to send")
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	return cmd
}
