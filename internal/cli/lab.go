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
	"weft.dev/weft/internal/lab/probe"
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

A node, the world outside it and each pod are network namespaces below
/run/weft-lab; the node runs a real agent, and pods are attached by the real
CNI plugin. Nothing else on the machine is touched. Needs root.`
	cmd.PersistentFlags().StringVar(&f.name, "name", lab.DefaultName, "name of the lab")
	cmd.PersistentFlags().StringVar(&f.root, "root", lab.DefaultRoot, "directory of all labs")
	_ = cmd.PersistentFlags().MarkHidden("root")
	cmd.AddCommand(newLabUp(f), newLabDown(f), newLabStatus(f), newLabExec(f), newLabPod(f), newLabProbe())
	return cmd
}

func newLabUp(f *labFlags) *cobra.Command {
	var (
		s        lab.Spec
		mode     string
		subnets  []string
		conflist string
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make a lab and wait until its network is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			s.Name, s.Mode = f.name, lab.Mode(mode)
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
	cmd.Flags().StringSliceVar(&subnets, "subnet", nil, "pod subnet; repeat it for several, a pod gets one address of each (default 10.42.0.0/24 and fd00:42::/64)")
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
				return errors.New("the lab is not healthy: see NETWORK and CHECK above")
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

// newLabProbe returns the hidden tools of the demonstration, to be run through
// `weft lab exec`.
func newLabProbe() *cobra.Command {
	cmd := &cobra.Command{Use: "probe", Short: "Ask questions of the network this runs in", Hidden: true}
	cmd.AddCommand(newProbePing(), newProbeServe(), newProbeAsk(), newProbeMachine())
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
				rtt, err := probe.Ping(cmd.Context(), addr)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s answers in %.3f ms\n", addr, float64(rtt.Microseconds())/1000)
			}
			return nil
		},
	}
}

func newProbeServe() *cobra.Command {
	var (
		as   string
		port uint16
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer on a port, TCP and UDP, with a name and the client's address",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := probe.Listen(as, port)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "listening on port %d\n", s.Port())
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return s.Run(ctx)
		},
	}
	cmd.Flags().StringVar(&as, "as", "server", "name to answer with")
	cmd.Flags().Uint16Var(&port, "port", 8080, "port to listen on, 0 for any")
	return cmd
}

func newProbeAsk() *cobra.Command {
	return &cobra.Command{
		Use:   "ask tcp|udp ADDRESS:PORT...",
		Short: "Print what the servers at these addresses answer, one line each",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args[1:] {
				server, err := netip.ParseAddrPort(arg)
				if err != nil {
					return err
				}
				answer, err := probe.Ask(cmd.Context(), args[0], server)
				if err != nil {
					return err
				}
				fmt.Fprint(cmd.OutOrStdout(), answer)
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
