// SPDX-License-Identifier: Apache-2.0

// Command cluster starts and stops a Kubernetes cluster on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"weft.dev/weft/test/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var dir string
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A Kubernetes cluster on this machine: real API server, kubelets and containerd",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&dir, "dir", filepath.Join(os.TempDir(), "weft-cluster"), "directory of the cluster")
	root.AddCommand(up(&dir), down(&dir), status(&dir), execute(&dir), reboot(&dir))
	return root
}

func up(dir *string) *cobra.Command {
	var o cluster.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Dir = *dir
			o.Log = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			c, err := cluster.Up(cmd.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", c.Kubeconfig())
			return nil
		},
	}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 2, "number of nodes")
	cmd.Flags().StringVar(&o.Family, "family", "ipv4", "ipv4, ipv6 or dual")
	cmd.Flags().StringVar(&o.Proxy, "proxy", "nftables", "mode of kube-proxy: nftables or iptables")
	cmd.Flags().StringSliceVar(&o.Images, "image", nil, "image archive to import on every node")
	return cmd
}

func down(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything of it but the logs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := cluster.Load(*dir)
			if err != nil {
				return err
			}
			return c.Down()
		},
	}
}

func status(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say whether the cluster is running, and list its nodes and pods",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := running(*dir)
			if err != nil {
				return err
			}
			for _, what := range []string{"nodes", "pods"} {
				out, err := c.Kubectl(cmd.Context(), "get", what, "--all-namespaces", "-o", "wide")
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), out)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", c.Kubeconfig())
			return nil
		},
	}
}

func execute(dir *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NODE COMMAND [ARGUMENT...]",
		Short: "Run a command on a node",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := node(*dir, args[0])
			if err != nil {
				return err
			}
			out, err := n.Exec(cmd.Context(), args[1:]...)
			fmt.Fprint(cmd.OutOrStdout(), out)
			return err
		},
	}
	// Options behind the node's name are the command's.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func reboot(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "reboot NODE",
		Short: "Cut a node's power and start it again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := node(*dir, args[0])
			if err != nil {
				return err
			}
			return n.Reboot(cmd.Context())
		},
	}
}

// running loads a cluster that is.
func running(dir string) (*cluster.Cluster, error) {
	c, err := cluster.Load(dir)
	if err != nil {
		return nil, err
	}
	switch is, err := c.Running(); {
	case err != nil:
		return nil, err
	case !is:
		return nil, errors.New("find cluster in " + dir + ": none is running there (cluster up starts one)")
	}
	return c, nil
}

func node(dir, name string) (*cluster.Node, error) {
	c, err := running(dir)
	if err != nil {
		return nil, err
	}
	n := c.Node(name)
	if n == nil {
		return nil, fmt.Errorf("find node %s in cluster %s: there is no such node", name, dir)
	}
	return n, nil
}
