// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/kubectl"
)

// IsKubectlPlugin reports whether the program was started as `kubectl weft`:
// kubectl finds plugins by the name of the file, kubectl-weft.
func IsKubectlPlugin(argv0 string) bool {
	name := filepath.Base(argv0)
	return strings.HasPrefix(name, "kubectl-") || strings.HasPrefix(name, "kubectl_")
}

// NewKubectlPlugin returns the root command of `kubectl weft`. version is what
// --version prints.
func NewKubectlPlugin(version string) *cobra.Command {
	var t kubectl.Target
	cmd := &cobra.Command{
		Use:   "kubectl weft [flags] COMMAND...",
		Short: "Run the operator's commands of weft on the nodes of a cluster",
		Long: `Run the operator's commands of weft on the nodes of a cluster: on one, or on all.

Each command is executed in the agent's pod of the node. Flags of kubectl come
before the command, those of the command after it. Nodes answer in the order of
their names. Which node it is goes to standard error, so that standard output has
nothing but what the commands print: of -o json, a document for each node.`,
		Example:       "  kubectl weft status\n  kubectl weft --node worker-3 pod list\n  kubectl weft --node worker-3 pod trace shop/web-0\n  kubectl weft status -o json | jq -s .",
		Version:       version,
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return kubectl.Run(cmd.Context(), t, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&t.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: as kubectl)")
	flags.StringVar(&t.Context, "context", "", "context of the kubeconfig (default: the current one)")
	flags.StringVarP(&t.Namespace, "namespace", "n", "kube-system", "namespace that the agents run in")
	flags.StringVar(&t.Node, "node", "", "only on this node (default: on all)")
	flags.DurationVar(&t.Timeout, "timeout", 15*time.Second, "how long one node may take to answer; 0: no limit")
	return cmd
}
