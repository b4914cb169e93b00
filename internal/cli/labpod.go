// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/lab"
	"weft.dev/weft/internal/view"
)

func newLabPod(f *labFlags) *cobra.Command {
	cmd := group("pod", "Add, delete and list pods")
	cmd.AddCommand(newLabPodAdd(f), newLabPodDel(f), newLabPodList(f))
	return cmd
}

func newLabPodAdd(f *labFlags) *cobra.Command {
	var (
		node   string
		ips    []string
		format string
	)
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Make a pod and attach it, as a container runtime does (CNI ADD)",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := view.ParseFormat(format); err != nil {
				return err // before anything is made
			}
			s := lab.PodSpec{Name: args[0], Node: node}
			for _, text := range ips {
				ip, err := netip.ParseAddr(text)
				if err != nil {
					return fmt.Errorf("requested address %q: %w", text, err)
				}
				s.IPs = append(s.IPs, ip)
			}
			h, err := f.host(nil)
			if err != nil {
				return err
			}
			p, err := h.AddPod(cmd.Context(), f.name, s)
			if err != nil {
				return err
			}
			return printPods(cmd, format, []lab.Pod{p})
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "node of the pod (default the first)")
	cmd.Flags().StringSliceVar(&ips, "ip", nil, "address to request; repeat it for each family")
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	return cmd
}

func newLabPodDel(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "del NAME",
		Short: "End what runs in a pod, detach it (CNI DEL) and remove it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := f.host(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return h.DeletePod(cmd.Context(), f.name, args[0])
		},
	}
}

func newLabPodList(f *labFlags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the pods, without asking anything of them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := f.host(nil)
			if err != nil {
				return err
			}
			pods, err := h.Pods(f.name)
			if err != nil {
				return err
			}
			return printPods(cmd, format, pods)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	return cmd
}

func printPods(cmd *cobra.Command, format string, pods []lab.Pod) error {
	f, err := view.ParseFormat(format)
	if err != nil {
		return err
	}
	return view.Write(cmd.OutOrStdout(), f, pods)
}
