// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/registry"
)

// final is the registry at the end.
type final struct {
	w      *World
	nodes  map[string]bool
	pools  []cluster.Pool
	leases []cluster.Lease
	owners map[netip.Addr]*node // of underlay addresses
	ways   map[[2]string]topology.Way
}

// converged holds the World at rest to what it must be.
func (w *World) converged(healed time.Time) {
	w.result.Rest = max(0, w.written.Sub(healed))
	if left := w.now.Sub(w.written); left < time.Minute {
		w.violated("leases still change, %s before the end", left)
	}
	f := &final{w: w, nodes: map[string]bool{}, leases: w.registry.Leases(), owners: map[netip.Addr]*node{}, ways: map[[2]string]topology.Way{}}
	w.tap.View(func(s *registry.State) {
		for name := range s.Nodes {
			f.nodes[name] = true
		}
		var pools []cluster.Pool
		for _, name := range sortedKeys(s.Pools) {
			pools = append(pools, s.Pools[name])
		}
		f.pools, _ = cluster.AcceptPools(pools, maps.Values(s.Leases))
	})
	for _, n := range w.live {
		for _, a := range n.addresses() {
			f.owners[a] = n
		}
	}
	if len(f.nodes) != len(w.live) {
		w.violated("%d Node objects, %d nodes", len(f.nodes), len(w.live))
	}
	for _, l := range f.leases {
		if !slices.ContainsFunc(w.live, func(n *node) bool { return n.name == l.Node }) {
			w.violated("SubnetLease %s is of %s, which is no more", l.Name(), l.Node)
		}
	}
	for _, n := range w.live {
		if w.err != nil {
			return
		}
		f.checkLeases(n)
		f.checkStatus(n)
		f.checkKernel(n)
		f.checkWays(n)
		f.checkWanderers(n)
	}
	f.checkSymmetry()
}

// checkLeases holds a node to having what it needs and nothing else, and to
// its leases saying what is so.
func (f *final) checkLeases(n *node) {
	w := f.w
	served := n.ipam.pool.Subnets()
	unused := [2]int{}
	for _, l := range f.leases {
		if l.Node != n.name {
			continue
		}
		if l.NodeUID != n.object.UID || !slices.Equal(l.Addresses, n.addresses()) || l.VTEP != n.vtep() {
			w.violated("SubnetLease %s says %+v, %s is %+v", l.Name(), l, n.name, n.object)
		}
		if l.Pod == "" && !n.ipam.used(l.Subnet) {
			unused[familyOf(l.Subnet.Addr())]++
		}
	}
	for family, count := range unused {
		// With nothing better to be had, blocks of a pool that is gone stay.
		if count > 1 && len(n.keeper.Status().Waiting) == 0 {
			w.violated("%s holds %d unused blocks of family %d: %+v", n.name, count, family, n.keeper.Status())
		}
	}
	for _, r := range n.wantsOf(f.pools) {
		has := slices.ContainsFunc(served, func(p netip.Prefix) bool { return p.Addr().Is4() == r.Addr().Is4() })
		if !has && f.room(n, r.Addr().Is4()) {
			w.violated("%s has no block of the family of %s: %+v", n.name, r, n.keeper.Status())
		}
	}
}

// room reports whether there is a block of the family for the node.
func (f *final) room(n *node, v4 bool) bool {
	if len(n.object.PodCIDRs) > 0 {
		return true
	}
	for _, p := range f.pools {
		for _, r := range p.Ranges {
			if r.CIDR.Addr().Is4() != v4 || !p.Selector.Matches(n.object.Labels) {
				continue
			}
			free := 1 << (r.BlockBits - r.CIDR.Bits())
			for _, l := range f.leases {
				if l.Pod == "" && l.Subnet.Overlaps(r.CIDR) {
					free -= max(1, 1<<max(0, r.BlockBits-l.Subnet.Bits()))
				}
			}
			for _, q := range p.Reserved {
				if q.Overlaps(r.CIDR) && q.Bits() <= r.BlockBits {
					free -= 1 << (r.BlockBits - q.Bits())
				}
			}
			if free > 0 {
				return true
			}
		}
	}
	return false
}

// checkStatus holds a node to having nothing left to do, and saying so.
func (f *final) checkStatus(n *node) {
	w := f.w
	if !n.up || len(n.feed.pending) > 0 {
		w.violated("%s: up: %v, %d changes on their way", n.name, n.up, len(n.feed.pending))
		return
	}
	s := n.keeper.Status()
	if s.Err != nil || len(s.Waiting) > 0 && f.room(n, true) && f.room(n, false) {
		w.violated("leases of %s: %v, waiting: %q", n.name, s.Err, s.Waiting)
	}
	for _, k := range n.fabric.Status() {
		if k.Closed || k.Pending > 0 || len(k.Failing) > 0 || k.InSyncSince.IsZero() {
			w.violated("%s of %s: %+v", k.Kind, n.name, k)
		}
	}
}

// checkKernel holds a kernel to the definition.
func (f *final) checkKernel(n *node) {
	want, _ := topology.Compute(n.self, f.nodes, f.leases)
	own, k := n.nodeObjects(), n.kernel
	maps.Copy(want.Routes, own.Routes)
	same(k.links, want.Links)
	same(k.addresses, want.Addresses)
	same(k.neighbours, want.Neighbours)
	same(k.fdb, want.FDB)
	same(k.routes, want.Routes)
	same(k.sysctls, own.Sysctls)
	same(k.nat, own.NAT)
}

// same tells the first difference of a kind.
func same[K delta.Key[K], V comparable](have *objects[K, V], want map[K]topology.Wanted[V]) {
	keys := slices.Collect(maps.Keys(have.have))
	keys = slices.AppendSeq(keys, maps.Keys(want))
	slices.SortFunc(keys, K.Compare)
	for _, key := range keys {
		v, there := have.have[key]
		w, wanted := want[key]
		if there != wanted || v != w.Value {
			have.kernel.node.w.violated("%s of %s: %v is %v (there: %v), want %v (wanted: %v, by %q)",
				have.kind, have.kernel.node.name, key, v, there, w.Value, wanted, w.Origin)
			return
		}
	}
}

// checkWays sends a packet to each block of each other node.
func (f *final) checkWays(from *node) {
	for _, to := range f.w.live {
		if to == from {
			continue
		}
		for _, block := range to.ipam.pool.Subnets() {
			way, err := f.walk(from, to, block.Addr().Next().Next())
			if err != nil {
				f.w.violated("from %s at %v to %s at %v, in %s: %v", from.name, from.addresses(), to.name, to.addresses(), block, err)
				return
			}
			key := [2]string{from.name, to.name}
			if block.Addr().Is6() { // the families may differ
				key[0] += " IPv6"
			}
			if before := f.ways[key]; before != "" && before != way {
				f.w.violated("from %s to %s: %s and %s", from.name, to.name, before, way)
			}
			f.ways[key] = way
		}
	}
}

// checkSymmetry holds every pair to the same way there and back.
func (f *final) checkSymmetry() {
	for _, a := range f.w.live {
		for _, b := range f.w.live {
			for _, family := range []string{"", " IPv6"} {
				there, back := f.ways[[2]string{a.name + family, b.name}], f.ways[[2]string{b.name + family, a.name}]
				if there != "" && back != "" && there != back {
					f.w.violated("from %s to %s: %s, back: %s", a.name, b.name, there, back)
				}
			}
		}
	}
}

// walk follows what the kernels hold, and returns by which way the packet came
// to the node that it was for.
func (f *final) walk(from, to *node, dst netip.Addr) (topology.Way, error) {
	route, found := lookup(from.kernel, dst)
	if !found {
		if !connected(from, to) {
			return topology.Unreachable, nil
		}
		return "", fmt.Errorf("no route")
	}
	if _, vxlan := from.kernel.links.have[topology.LinkKey(route.Dev)]; !vxlan {
		if owner := f.owners[route.Gateway]; owner != to || !onSegment(from, route.Gateway) {
			return "", fmt.Errorf("route %+v leads to another node or off the segment", route)
		}
		return topology.ByRoute, nil
	}
	neighbour, found := from.kernel.neighbours.have[topology.NeighbourKey{Dev: route.Dev, Addr: route.Gateway}]
	if !found {
		return "", fmt.Errorf("route %+v without neighbour", route)
	}
	entry, found := from.kernel.fdb.have[topology.FDBKey{Dev: route.Dev, MAC: neighbour.MAC}]
	if !found {
		return "", fmt.Errorf("neighbour %+v without FDB entry", neighbour)
	}
	if f.owners[entry.Dst] != to {
		return "", fmt.Errorf("FDB entry %+v leads to another node", entry)
	}
	out := from.kernel.links.have[topology.LinkKey(route.Dev)]
	for _, in := range to.kernel.links.have {
		if in.MAC == neighbour.MAC && in.Local == entry.Dst && in.VNI == out.VNI && in.Port == out.Port {
			return topology.ByVXLAN, nil
		}
	}
	return "", fmt.Errorf("nothing at %s takes %+v", entry.Dst, neighbour)
}

// lookup finds the route of the longest prefix.
func lookup(k *kernel, dst netip.Addr) (topology.Route, bool) {
	for bits := dst.BitLen(); bits > 0; bits-- {
		p, err := dst.Prefix(bits)
		if err != nil {
			return topology.Route{}, false
		}
		if r, found := k.routes.have[topology.RouteKey{Dst: p}]; found {
			return r, true
		}
	}
	return topology.Route{}, false
}

// connected reports whether two machines have an underlay of one family.
func connected(a, b *node) bool {
	for _, u := range a.addresses() {
		if slices.ContainsFunc(b.addresses(), func(v netip.Addr) bool { return u.Is4() == v.Is4() }) {
			return true
		}
	}
	return false
}

func onSegment(n *node, a netip.Addr) bool {
	return slices.ContainsFunc(n.self.Underlay, func(u topology.Underlay) bool { return u.Addr.Contains(a) })
}
