// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/view"
)

func newNodeCommand() *cobra.Command {
	var s stateFlags
	cmd := group("node", "Show the nodes of the cluster, as this node's agent sees them")
	s.add(cmd)
	cmd.AddCommand(newListCommand(&s, "List the nodes, and how their pods are reached from here",
		func(r report.Report) []report.Node { return r.Nodes }), newNodeShow(&s))
	return cmd
}

func newLeaseCommand() *cobra.Command {
	var s stateFlags
	cmd := group("lease", "Show the subnet leases of the cluster, as this node's agent sees them")
	s.add(cmd)
	cmd.AddCommand(newListCommand(&s, "List the leases, and how their pods are reached from here",
		func(r report.Report) []report.Lease { return r.Leases }))
	return cmd
}

func newRouteCommand() *cobra.Command {
	var s stateFlags
	cmd := group("route", "Show the routes that this node's agent keeps")
	s.add(cmd)
	cmd.AddCommand(newListCommand(&s, "List the routes, each with the object that asks for it",
		func(r report.Report) []report.Route { return r.Routes }))
	return cmd
}

// newListCommand prints one part of the agent's report.
func newListCommand[R view.Row](s *stateFlags, short string, part func(report.Report) []R) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := s.node().Everything()
			if err != nil {
				return err
			}
			return print(cmd, s, part(r))
		},
	}
}

// nodeDetail is a node with its leases and the routes to them.
type nodeDetail struct {
	report.Node
	Leases []report.Lease `json:"leases"`
	Routes []report.Route `json:"routes"`
}

func newNodeShow(s *stateFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "show NODE",
		Short: "Show a node with its leases, and the routes to them from here",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := s.node().Everything()
			if err != nil {
				return err
			}
			d, err := detailOf(r, args[0])
			if err != nil {
				return err
			}
			if s.output != string(view.Table) {
				return print(cmd, s, []nodeDetail{d})
			}
			return d.print(cmd, s)
		},
	}
}

func detailOf(r report.Report, name string) (nodeDetail, error) {
	i := slices.IndexFunc(r.Nodes, func(n report.Node) bool { return n.Name == name })
	if i < 0 {
		names := make([]string, 0, len(r.Nodes))
		for _, n := range r.Nodes {
			names = append(names, n.Name)
		}
		const most = 10
		if len(names) > most {
			names = append(names[:most], "...")
		}
		return nodeDetail{}, fmt.Errorf("node %q: this agent knows [%s]; see weft node list", name, strings.Join(names, " "))
	}
	d := nodeDetail{Node: r.Nodes[i]}
	for _, l := range r.Leases {
		if l.Node == name {
			d.Leases = append(d.Leases, l)
		}
	}
	for _, route := range r.Routes {
		if slices.ContainsFunc(d.Subnets, func(s netip.Prefix) bool {
			return s.Bits() <= route.Destination.Bits() && s.Contains(route.Destination.Addr())
		}) {
			d.Routes = append(d.Routes, route)
		}
	}
	return d, nil
}

func (d nodeDetail) print(cmd *cobra.Command, s *stateFlags) error {
	if err := print(cmd, s, []report.Node{d.Node}); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout())
	if err := print(cmd, s, d.Leases); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return print(cmd, s, d.Routes)
}
