// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/agent"
)

func newAgentCommand() *cobra.Command {
	var file string
	var check bool
	cmd := &cobra.Command{
		Use:   "agent --config FILE",
		Short: "Run the node agent until SIGTERM",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := agent.LoadConfiguration(file)
			if err != nil || check {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			log, level := newLogger(cmd.ErrOrStderr(), config.Log)
			go tuneCollector(ctx)
			return agent.Run(ctx, config, file, cmd.Root().Version, log, level)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (kind AgentConfiguration)")
	cmd.Flags().BoolVar(&check, "check-config", false, "only say whether the configuration is good")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

func newLogger(w io.Writer, c v1alpha1.LogConfiguration) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(c.Level)) // validated with the configuration
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), level
	}
	return slog.New(slog.NewTextHandler(w, opts)), level
}
