// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
)

// circleNodes are two segments of two nodes each.
var circleNodes = map[string][]Underlay{
	"node1": {{Addr: netip.MustParsePrefix("198.18.1.11/24"), Dev: "uplink0", MTU: 1500}},
	"node2": {{Addr: netip.MustParsePrefix("198.18.1.12/24"), Dev: "uplink0", MTU: 1500}},
	"node3": {{Addr: netip.MustParsePrefix("198.18.2.13/24"), Dev: "uplink0", MTU: 1500}},
	"node4": {{Addr: netip.MustParsePrefix("198.18.2.14/24"), Dev: "uplink0", MTU: 1500}},
}

// drawHeld is a lease of a node of circleNodes, of a block or of a pod.
var drawHeld = rapid.Custom(func(t *rapid.T) cluster.Lease {
	l := cluster.Lease{
		Subnet:  drawSubnet.Filter(func(p netip.Prefix) bool { return !strings.HasPrefix(p.String(), "198") }).Draw(t, "subnet"),
		Node:    rapid.SampledFrom(slices.Sorted(maps.Keys(circleNodes))).Draw(t, "node"),
		Created: rapid.Int64Range(0, 3).Draw(t, "created"),
	}
	if rapid.Bool().Draw(t, "of a pod") {
		l.Pod = "prod/db-0"
		l.Subnet = drawInside.Draw(t, "of it")(l.Subnet)
	}
	l.Addresses = []netip.Addr{circleNodes[l.Node][0].Addr.Addr()}
	l.VTEP = cluster.VTEP{MAC: cluster.VTEPMAC(l.Node), VNI: 1, Port: 8472}
	return l
})

// TestNoPacketGoesInCircles: between nodes that see the same leases, no packet to
// an address that no pod has comes to a node twice.
func TestNoPacketGoesInCircles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.SliceOfDistinct(drawHeld, cluster.Lease.Name).Draw(t, "leases")
		backend := rapid.SampledFrom([]Backend{Auto, VXLAN, Native}).Draw(t, "backend")
		known, routes := map[string]bool{}, map[string]map[RouteKey]Wanted[Route]{}
		for node := range circleNodes {
			known[node] = true
		}
		for node, underlay := range circleNodes {
			o, reach := Compute(Self{Node: node, Underlay: underlay, Backend: backend, VNI: 1, Port: 8472}, known, leases)
			routes[node] = o.Routes
			checkLastResorts(t, node, o.Routes, reach, leases)
		}
		for _, l := range leases {
			for node := range circleNodes {
				for _, a := range []netip.Addr{l.Subnet.Addr(), l.Subnet.Addr().Next()} {
					if way := walk(routes, node, a); slices.Contains(way[:len(way)-1], way[len(way)-1]) {
						t.Fatalf("a packet to %s goes %v", a, way)
					}
				}
			}
		}
	})
}

// checkLastResorts fails unless a node has such a route to each address that it
// leases for a pod, in effect, and to no other one.
func checkLastResorts(t *rapid.T, node string, routes map[RouteKey]Wanted[Route], reach []Reach, leases []cluster.Lease) {
	t.Helper()
	var got, want []string
	for k, r := range routes {
		if k.LastResort {
			got = append(got, fmt.Sprint(k.Dst, r.Value))
		}
	}
	for _, r := range reach {
		i := slices.IndexFunc(leases, func(l cluster.Lease) bool { return l.Name() == r.Lease })
		if r.Way == Local && leases[i].Pod != "" {
			want = append(want, fmt.Sprint(r.Subnet, Route{}))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("%s has routes of last resort %v, want %v", node, got, want)
	}
}

// walk follows a packet from node to node, until it gets nowhere, leaves the
// cluster, or has been where it is. A route leads to the node that its origin
// names.
func walk(routes map[string]map[RouteKey]Wanted[Route], node string, to netip.Addr) []string {
	way := []string{node}
	for {
		var best RouteKey
		for k := range routes[node] {
			if k.Dst.Contains(to) && (!best.Dst.IsValid() || k.Dst.Bits() > best.Dst.Bits()) {
				best = k
			}
		}
		route := routes[node][best]
		if !route.Value.Gateway.IsValid() {
			return way
		}
		node = route.Origin[strings.LastIndexByte(route.Origin, ' ')+1:]
		been := slices.Contains(way, node)
		if way = append(way, node); been {
			return way
		}
	}
}
