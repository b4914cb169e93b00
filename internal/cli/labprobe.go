// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/lab"
	"weft.dev/weft/internal/lab/probe"
)

// newLabProbe returns the hidden tools of the demonstration, to be run through
// `weft lab exec`.
func newLabProbe() *cobra.Command {
	cmd := &cobra.Command{Use: "probe", Short: "Ask questions of the network this runs in", Hidden: true}
	cmd.AddCommand(newProbePing(), newProbeMachine())
	return cmd
}

func newProbePing() *cobra.Command {
	return &cobra.Command{
		Use:   "ping ADDRESS...",
		Short: "Ping each address until it answers, three times at most",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				addr, err := netip.ParseAddr(arg)
				if err != nil {
					return err
				}
				rtt, err := probe.Ping(cmd.Context(), addr, "")
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s answers in %.3f ms\n", addr, float64(rtt.Microseconds())/1000)
			}
			return nil
		},
	}
}

func newProbeMachine() *cobra.Command {
	return &cobra.Command{
		Use:   "machine",
		Short: "Print what a lab could leave behind on the machine, sorted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			m, err := lab.ObserveMachine(filepath.Dir(self))
			if err != nil {
				return err
			}
			for _, line := range m {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return nil
		},
	}
}
