// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
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
			raw, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("read the agent's configuration: %w", err)
			}
			config, err := v1alpha1.ParseAgentConfiguration(raw)
			if err != nil {
				return fmt.Errorf("configuration %s: %w", file, err)
			}
			if check {
				return nil
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return agent.Run(ctx, config, newLogger(cmd.ErrOrStderr(), config.Log))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (kind AgentConfiguration)")
	cmd.Flags().BoolVar(&check, "check-config", false, "only say whether the configuration is good")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

func newLogger(w io.Writer, c v1alpha1.LogConfiguration) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // validated with the configuration
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
