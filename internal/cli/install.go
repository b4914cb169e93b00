// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/install"
)

// defaultBinDir is where runtimes look for CNI plugins.
const defaultBinDir = "/opt/cni/bin"

func newInstallCommand() *cobra.Command {
	var dir, from string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put the CNI plugin where the runtime looks for it",
		Long: `Put the CNI plugin where the runtime looks for it, as weft-cni and weft-ipam.

The plugin is replaced by rename, while it is in use too, and not touched where
it is the same. The network configuration is not written: the agent does that
once the node can serve pods.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("find the directory of this program: %w; say by --from where %s is", err, install.PluginName)
				}
				from = filepath.Join(filepath.Dir(self), install.PluginName)
			}
			log, _ := newLogger(cmd.ErrOrStderr(), v1alpha1.LogConfiguration{Level: "info"})
			return install.Binaries(dir, from, log)
		},
	}
	cmd.Flags().StringVar(&dir, "bin-dir", defaultBinDir, "the runtime's directory of CNI plugins")
	cmd.Flags().StringVar(&from, "from", "", "the plugin to install (default: weft-cni beside this program)")
	return cmd
}
