// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/reconcile"
)

type tables struct {
	sysctls    *reconcile.Table[topology.SysctlKey, topology.Sysctl]
	links      *reconcile.Table[topology.LinkKey, topology.Link]
	addresses  *reconcile.Table[topology.AddressKey, topology.Address]
	neighbours *reconcile.Table[topology.NeighbourKey, topology.Neighbour]
	fdb        *reconcile.Table[topology.FDBKey, topology.FDB]
	routes     *reconcile.Table[topology.RouteKey, topology.Route]
	nat        *reconcile.Table[topology.NATKey, topology.NAT]
}

func newTables(d Drivers) tables {
	t := tables{
		sysctls: reconcile.NewTable(Sysctls, d.Sysctls, func(k topology.SysctlKey) string {
			return "sysctl " + string(k)
		}),
		neighbours: reconcile.NewTable(Neighbours, d.Neighbours, func(k topology.NeighbourKey) string {
			return fmt.Sprintf("neighbour %s dev %s", k.Addr, k.Dev)
		}),
		fdb: reconcile.NewTable(FDB, d.FDB, func(k topology.FDBKey) string {
			return fmt.Sprintf("fdb %s dev %s", k.MAC, k.Dev)
		}),
		routes: reconcile.NewTable(Routes, d.Routes, func(k topology.RouteKey) string {
			switch {
			case k.Local:
				return "local route " + k.Dst.String()
			case k.LastResort:
				return "last-resort route " + k.Dst.String()
			}
			return "route " + k.Dst.String()
		}),
		nat: reconcile.NewTable(NAT, d.NAT, func(k topology.NATKey) string {
			return "nft table inet " + string(k)
		}),
	}
	// With the last IPv4 address of a device the kernel takes its IPv4 routes
	// away, and does not tell.
	t.addresses = reconcile.NewTable(Addresses, d.Addresses, func(k topology.AddressKey) string {
		return fmt.Sprintf("address %s dev %s", k.Addr, k.Dev)
	}, t.routes)
	t.links = reconcile.NewTable(Links, d.Links, func(k topology.LinkKey) string {
		return "link " + string(k)
	}, t.addresses, t.neighbours, t.fdb, t.routes)
	return t
}

// stage is how much the tables know of what is desired.
type stage struct{ node, cluster bool }

// open opens the tables of which everything desired is known. Routes are open
// by halves: the local table is the node's, the main table the cluster's.
func (t *tables) open(was, is stage) {
	if is == was {
		return
	}
	if is.node && !was.node {
		t.sysctls.Open(nil)
		t.nat.Open(nil)
	}
	if is.cluster && !was.cluster {
		t.links.Open(nil)
		t.addresses.Open(nil)
		t.neighbours.Open(nil)
		t.fdb.Open(nil)
	}
	if is.node && is.cluster {
		t.routes.Open(nil)
	} else {
		t.routes.Open(func(k topology.RouteKey) bool { return k.Local == is.node })
	}
}

// update takes in what the cluster wants differently.
func (t *tables) update(u topology.Updates) {
	update(t.links, u.Links)
	update(t.addresses, u.Addresses)
	update(t.neighbours, u.Neighbours)
	update(t.fdb, u.FDB)
	update(t.routes, u.Routes)
}

func update[K delta.Key[K], V comparable](t *reconcile.Table[K, V], updates []topology.Update[K, V]) {
	for _, u := range updates {
		if u.Gone {
			t.Unwant(u.Key)
		} else {
			t.Want(u.Key, u.Value, u.Origin)
		}
	}
}

// replace takes in what the node wants instead of what it wanted before.
func (t *tables) replace(before, after Node) {
	replace(t.sysctls, before.Sysctls, after.Sysctls)
	replace(t.routes, before.Routes, after.Routes)
	replace(t.nat, before.NAT, after.NAT)
}

func replace[K delta.Key[K], V comparable](t *reconcile.Table[K, V], before, after map[K]topology.Wanted[V]) {
	for k := range before {
		if _, wanted := after[k]; !wanted {
			t.Unwant(k)
		}
	}
	for k, w := range after {
		if b, wanted := before[k]; !wanted || b != w {
			t.Want(k, w.Value, w.Origin)
		}
	}
}
