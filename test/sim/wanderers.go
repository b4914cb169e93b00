// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/topology"
)

// wanderers is how many pods have an address that they take along from node to
// node: every second one of IPv4.
const wanderers = 12

// wanderer is a pod with a lease of its own.
type wanderer struct {
	pod  string
	addr netip.Addr
}

// newWanderers draws an address for each, that no block has as its gateway. No
// IPAM gives it to somebody else: it is in a claim, which all nodes know.
func (w *World) newWanderers() {
	for i := range wanderers {
		r := w.firstPool().Ranges[i%2]
		a := w.within(r.CIDR, r.BlockBits).Addr().AsSlice()
		a[len(a)-1] |= byte(40 + i)
		addr, _ := netip.AddrFromSlice(a)
		w.wanderers = append(w.wanderers, wanderer{pod: fmt.Sprintf("prod/wanderer-%d", i), addr: addr})
	}
}

// kept reports addresses that only a wanderer may have.
func (w *World) kept(a netip.Addr) bool {
	return slices.ContainsFunc(w.wanderers, func(p wanderer) bool { return p.addr == a })
}

// wander has a pod start on the node: its lease is created, or taken over from
// where it ran before.
func (w *World) wander(n *node) { w.arrive(pick(w, w.wanderers...), n) }

func (w *World) arrive(p wanderer, n *node) {
	subnet := netip.PrefixFrom(p.addr, p.addr.BitLen())
	l, there := w.registry.Lease(cluster.LeaseName(subnet))
	if !there {
		l = cluster.Lease{Subnet: subnet, Pool: "default", Pod: p.pod}
	}
	l.Node, l.NodeUID, l.Addresses, l.VTEP, l.Version = n.name, n.object.UID, n.addresses(), n.vtep(), ""
	w.put(leaseKey(subnet), l)
}

// settleWanderers gives each pod that lost its lease with its node another one.
func (w *World) settleWanderers() {
	for _, p := range w.wanderers {
		if _, there := w.registry.Lease(cluster.LeaseName(netip.PrefixFrom(p.addr, p.addr.BitLen()))); !there {
			w.arrive(p, pick(w, w.live...))
		}
	}
}

// checkWanderers sends a packet to each of them: it comes to the node where the
// pod is, and not to the one whose block the address is in.
func (f *final) checkWanderers(from *node) {
	for _, p := range f.w.wanderers {
		l, there := f.w.registry.Lease(cluster.LeaseName(netip.PrefixFrom(p.addr, p.addr.BitLen())))
		i := slices.IndexFunc(f.w.live, func(n *node) bool { return n.name == l.Node })
		if !there || i < 0 || l.Pod != p.pod {
			f.w.violated("%s at %s is nowhere: %+v", p.pod, p.addr, l)
			return
		}
		to := f.w.live[i]
		if to == from {
			if r, found := from.kernel.routes.have[topology.RouteKey{Dst: l.Subnet}]; found {
				f.w.violated("%s, where %s runs, has the route %+v in the way of the pod's", from.name, p.pod, r)
			}
			if _, found := from.kernel.routes.have[topology.RouteKey{Dst: l.Subnet, LastResort: true}]; !found {
				f.w.violated("%s, where %s runs, has no last-resort route to %s", from.name, p.pod, l.Subnet)
			}
			continue
		}
		if !connected(from, to) {
			continue
		}
		if _, err := f.walk(from, to, p.addr); err != nil {
			f.w.violated("from %s at %v to %s at %s, on %s: %v", from.name, from.addresses(), p.pod, p.addr, to.name, err)
			return
		}
	}
}
