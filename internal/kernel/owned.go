// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// Owned is a host end of ours, with the addresses that the host leads to it.
type Owned struct {
	HostIfname string
	Alias      string       // "" for a link left behind between creation and alias
	Addresses  []netip.Addr // from the host routes of RouteProtocol, ascending
	Index      int
	MTU        int // bytes
	Ports      []attach.Mapping
}

// Owned lists the host ends in the Handle's namespace that bear our mark, by
// name. The lists are consistent: a dump during which the kernel's tables
// changed is repeated.
func (h *Handle) Owned() ([]Owned, error) {
	var owned []Owned
	err := h.with(func(c *conn) error {
		links, err := c.ownedLinks()
		if err != nil {
			return err
		}
		byIndex := make(map[int]*Owned, len(links))
		owned = make([]Owned, len(links))
		for i, l := range links {
			owned[i] = Owned{HostIfname: l.name, Alias: l.alias, Index: l.index, MTU: l.mtu}
			byIndex[l.index] = &owned[i]
		}
		if len(links) == 0 {
			return nil
		}
		routes, err := c.dumpRoutes(unix.AF_UNSPEC, RouteProtocol)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if o := byIndex[r.oif]; o != nil && r.dst.IsSingleIP() && r.kind == unix.RTN_UNICAST {
				o.Addresses = append(o.Addresses, r.dst.Addr())
			}
		}
		return nil
	})
	ports := map[string][]attach.Mapping{}
	if err == nil && len(owned) > 0 {
		ports, err = h.mappedPorts()
	}
	for i := range owned {
		owned[i].Ports = ports[owned[i].HostIfname]
		// A dump of IPv6 routes that change meanwhile may tell one twice.
		slices.SortFunc(owned[i].Addresses, netip.Addr.Compare)
		owned[i].Addresses = slices.Compact(owned[i].Addresses)
	}
	sort.Slice(owned, func(i, j int) bool { return owned[i].HostIfname < owned[j].HostIfname })
	return owned, err
}

func (c *conn) ownedLinks() ([]link, error) {
	links, err := c.dumpLinks(kindVeth)
	return slices.DeleteFunc(links, func(l link) bool {
		return !strings.HasPrefix(l.name, attach.HostIfnamePrefix) || !l.ours()
	}), err
}
