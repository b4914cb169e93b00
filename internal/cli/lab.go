// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/lab"
	"weft.dev/weft/internal/view"
)

// labFlags are the flags that every command of a lab has.
type labFlags struct {
	name string
	root string
}

// host returns the machine as the lab package sees it, telling its progress to
// w where that is not nil.
func (f *labFlags) host(w io.Writer) (lab.Host, error) {
	h, err := lab.NewHost()
	h.Root = f.root
	if w != nil {
		h.Progress = func(step string) { fmt.Fprintln(w, step) }
	}
	return h, err
}

// newLabCommand returns `weft lab`: a pod network on this machine, without
// Kubernetes.
func newLabCommand() *cobra.Command {
	f := &labFlags{}
	cmd := group("lab", "Make and use a small pod network on this machine, without Kubernetes")
	cmd.Long = `Make and use a small pod network on this machine, without Kubernetes.

Nodes, the world outside them and pods are network namespaces below
/run/weft-lab; each node runs a real agent, and pods are attached by the real
CNI plugin. The cluster's state is the directory "registry" of the lab, with
ordinary manifests. Nothing else on the machine is touched. Needs root.`
	cmd.PersistentFlags().StringVar(&f.name, "name", lab.DefaultName, "name of the lab")
	cmd.PersistentFlags().StringVar(&f.root, "root", lab.DefaultRoot, "directory of all labs")
	_ = cmd.PersistentFlags().MarkHidden("root")
	cmd.AddCommand(newLabUp(f), newLabDown(f), newLabStatus(f), newLabExec(f),
		newLabPod(f), newLabNode(f), newLabLink(f), newLabCheck(f), newLabStream(f), newLabProbe())
	return cmd
}

func newLabUp(f *labFlags) *cobra.Command {
	var (
		s        lab.Spec
		mode     string
		family   string
		backend  string
		subnets  []string
		conflist string
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make a lab and wait until its network is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			s.Name, s.Mode = f.name, lab.Mode(mode)
			s.Family, s.Backend = lab.Family(family), lab.Backend(backend)
			if s.Subnets, err = parseSubnets(subnets); err != nil {
				return err
			}
			for i, dir := range s.PluginDirs {
				if s.PluginDirs[i], err = filepath.Abs(dir); err != nil {
					return err
				}
			}
			if conflist != "" {
				text, err := os.ReadFile(conflist)
				if err != nil {
					return err
				}
				s.Conflist = string(text)
			}
			h, err := f.host(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			// An interrupted `up` removes what it made.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return h.Up(ctx, s)
		},
	}
	cmd.Flags().StringVar(&mode, "mode", string(lab.Thick), "how pods are attached: thick (by an agent) or thin (by the plugin alone)")
	cmd.Flags().IntVar(&s.Nodes, "nodes", 1, "number of nodes, 1 to 200; one in a thin lab")
	cmd.Flags().IntVar(&s.Segments, "segments", 1, "number of segments that the nodes are spread over; a router joins them")
	cmd.Flags().StringVar(&family, "family", string(lab.Dual), "what nodes and pods speak: ipv4, ipv6 or dual")
	cmd.Flags().StringVar(&backend, "backend", "", "how packets travel between nodes: auto, vxlan or native (default auto)")
	cmd.Flags().StringSliceVar(&subnets, "subnet", nil, "addresses of the pods, repeat it for each family: the space that nodes lease blocks from (default 10.42.0.0/16 and fd00:42::/48), "+
		"or in a thin lab a subnet of the node (default 10.42.0.0/24 and fd00:42::/64)")
	cmd.Flags().StringSliceVar(&s.PluginDirs, "plugin-dir", nil, "directory to search for other CNI plugins")
	cmd.Flags().StringVar(&conflist, "conflist", "", "file with a CNI network configuration list to use instead of the lab's own")
	return cmd
}

func parseSubnets(texts []string) ([]netip.Prefix, error) {
	var subnets []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("subnet %q: %w", text, err)
		}
		subnets = append(subnets, p)
	}
	return subnets, nil
}

func newLabDown(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove a lab, complete or not, and everything in it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := f.host(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return h.Down(cmd.Context(), f.name)
		},
	}
}

func newLabStatus(f *labFlags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a lab; asks STATUS of each node and CHECK of each pod",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			as, err := view.ParseFormat(format)
			if err != nil {
				return err
			}
			h, err := f.host(nil)
			if err != nil {
				return err
			}
			s, err := h.Status(cmd.Context(), f.name)
			if err != nil {
				return err
			}
			if err := s.Write(cmd.OutOrStdout(), as); err != nil {
				return err
			}
			if !s.Healthy() {
				return errors.New("the lab is not healthy: see LINK, NETWORK and CHECK above")
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	return cmd
}

func newLabExec(f *labFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exec NAME -- COMMAND [ARGUMENT...]",
		Short:   "Run a command in the network namespace of a pod, \"node1\" or \"outside\"",
		Example: "  weft lab exec web -- ip address\n  weft lab exec node1 -- nft list ruleset",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			argv := args[1:]
			if argv[0] == "--" {
				argv = argv[1:]
			}
			h, err := f.host(nil)
			if err != nil {
				return err
			}
			return h.Replace(f.name, args[0], argv)
		},
	}
	// What follows NAME belongs to the command, with or without "--", which
	// is then handed over like any other argument.
	cmd.Flags().SetInterspersed(false)
	return cmd
}
