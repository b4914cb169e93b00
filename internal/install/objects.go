// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/kernel"
)

// This file knows objects by their marks alone; see package kernel, Ownership.

// aliasMark is how the alias of every link of ours begins.
const aliasMark = "weft "

// stable repeats a dump during which the kernel's tables changed.
func stable[T any](dump func() (T, error)) (list T, err error) {
	const attempts = 10
	for range attempts {
		if list, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return list, err
}

// removeRoutes removes the routes of our protocol, in every table.
func removeRoutes() ([]Outcome, error) {
	var outcomes []Outcome
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		filter := &netlink.Route{Protocol: kernel.RouteProtocol, Table: unix.RT_TABLE_UNSPEC}
		routes, err := stable(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return outcomes, fmt.Errorf("list routes of protocol %d: %w", kernel.RouteProtocol, err)
		}
		for _, r := range routes {
			err := netlink.RouteDel(&r)
			if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
				continue // it went with another one
			}
			if err != nil {
				return outcomes, fmt.Errorf("delete route %s table %d: %w", r.Dst, r.Table, err)
			}
			outcomes = append(outcomes, Outcome{Object: "route " + nameOf(r), State: Removed})
		}
	}
	return outcomes, nil
}

func nameOf(r netlink.Route) string {
	s := r.Dst.String()
	if r.Gw != nil {
		s += " via " + r.Gw.String()
	}
	if r.Table == unix.RT_TABLE_LOCAL {
		s += " table local"
	}
	return s
}

// removeLinks removes every link with our mark, and with each what is on it.
func removeLinks() ([]Outcome, error) {
	links, err := stable(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var outcomes []Outcome
	for _, l := range links {
		if !ours(l) {
			continue
		}
		name := l.Attrs().Name
		err := netlink.LinkDel(l)
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return outcomes, fmt.Errorf("delete link %s: %w", name, err)
		}
		outcomes = append(outcomes, Outcome{Object: fmt.Sprintf("link %s (%s)", name, l.Type()), State: Removed})
	}
	return outcomes, nil
}

// ours reports whether a link is Weft's. One that was half made has a name of
// ours and no alias yet.
func ours(l netlink.Link) bool {
	a := l.Attrs()
	if a.Alias != "" {
		return strings.HasPrefix(a.Alias, aliasMark)
	}
	switch l.Type() {
	case "vxlan":
		return a.Name == topology.VXLANDevice4 || a.Name == topology.VXLANDevice6
	case "ifb":
		_, shaper := attach.ShapedBy(a.Name)
		return shaper
	}
	return false
}

// ourTable knows the agent's table, those of thin plugins' networks, and that of
// the ports of the host.
func ourTable(name string) bool {
	return name == "weft" || name == kernel.HostPortTable || strings.HasPrefix(name, "weft.")
}

// removeTables removes our nftables tables, in one transaction.
func removeTables() ([]Outcome, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("nftables: list tables: %w", err)
	}
	var outcomes []Outcome
	for _, t := range tables {
		if ourTable(t.Name) {
			c.DelTable(t)
			outcomes = append(outcomes, Outcome{Object: "nftables table inet " + t.Name, State: Removed})
		}
	}
	if len(outcomes) == 0 {
		return nil, nil
	}
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("nftables: delete tables: %w", err)
	}
	return outcomes, nil
}
