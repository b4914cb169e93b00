// SPDX-License-Identifier: Apache-2.0

// Package topology says what a node's kernel must hold so that its pods reach
// the pods of every other node: a pure function of the leases, the known nodes
// and this node's place in the underlay.
//
// # From a packet's point of view
//
//	pod 10.42.3.7 on node1 → pod 10.42.5.9 on node2
//
//	native (node2 is on the segment of one of node1's own addresses):
//	  10.42.5.0/24 via 198.18.1.12 dev uplink0 onlink
//	VXLAN (anything else):
//	  10.42.5.0/24 via 10.42.5.1 dev weft-vxlan onlink     route
//	  10.42.5.1 lladdr 9a:…:02 dev weft-vxlan PERMANENT     neighbour
//	  9a:…:02 dst 198.18.2.12 dev weft-vxlan self permanent FDB entry
//
// One lease is one route; with VXLAN also one neighbour, and one FDB entry per
// node. Nothing is learned and nothing is flooded. A packet to an address of
// this node's own leases that no pod has meets an unreachable route and comes
// back as an ICMP error, instead of leaving by the default route.
//
// # Leases of pods
//
// A lease that names a pod is of one address, and leads past the block that the
// address may be in, because the longer prefix wins:
//
//	10.42.5.0/24 via 10.42.5.1 dev weft-vxlan onlink     block of node2
//	10.42.5.7    via 10.42.5.7 dev weft-vxlan onlink     pod on node3
//	10.42.5.7 lladdr 9a:…:03 dev weft-vxlan PERMANENT
//
// Its next hop is the address itself, so that the leases of one node have
// nothing in common but the FDB entry. The node of the block keeps its
// unreachable route, which is shorter.
//
// On the node of the pod, the pod's host route has that destination. Beside it,
// for as long as the lease is there, is a route of last resort, with a metric that
// lets the other win:
//
//	10.42.5.7 dev weft3k9…                               not from this package
//	unreachable 10.42.5.7 metric 4278198272
//
// So a packet that comes while the pod does not run meets an ICMP error. Without
// it, the packet would go back to the node of the block, and from there come again.
//
// # Choice of the way, per lease
//
// Backend auto takes the native way where there is one, otherwise VXLAN.
// Backend native takes no VXLAN. Backend vxlan takes the native way only to a
// peer that has no VTEP, so that a cluster that changes its backend stays
// connected meanwhile. IPv4 is preferred for the underlay of VXLAN. IPv4 pods
// may be routed natively over an IPv6 gateway (Linux 5.2), IPv6 pods not over
// an IPv4 one.
//
// While a node's leases disagree about its address, as they do when it
// changes, each lease is judged by its own; where their common FDB entry leads
// is decided by the youngest lease (equal age: the greater name) of those that
// use it.
//
// # VXLAN devices
//
// The device of the preferred family of the underlay is there from the start,
// the other one while a peer needs it. Each has the gateways of this node's
// blocks as addresses. Without a configured MTU it is the underlay's, less the
// overhead, and never below 1280, where the kernel would take IPv6 off the
// device.
//
// # Rejected leases
//
// A lease has no effect on any node if its node is not known (each node knows
// itself), it is too small for a gateway (of a pod: more than one address), it contains its own node's address,
// its VTEP does not have its node's MAC, or it conflicts with a lease that
// stands and is older (equal age: the lesser name wins). Leases without effect
// stand in nobody's way.
//
// A lease claims its subnet and its node's addresses. Two leases of blocks
// conflict if their subnets overlap, one of a block and one of a pod only if the
// address is the block's gateway. Any two conflict if the subnet of one contains a
// node address of the other: its route would send into a tunnel, on all nodes, what carries the
// tunnels to that node. Several leases may have the same node address. As age
// decides, neither a stray subnet nor a stray node address takes anything from
// the leases that were there before.
//
// On this node alone a lease has no effect if it overlaps one of the node's own
// networks, from which its route would cut the node off, or if it is another
// node's and has an address of this one. It stands nevertheless: nodes must not
// disagree about who holds a block.
//
// A lease that is not rejected but reached by no way has no effect either; its
// Reach names each way and what is wrong with it.
//
// # Two ways to the same result
//
// Compute derives everything from scratch and is the definition. Map does so
// step by step, for an effort that depends on the change and not on the size of
// the cluster. They agree after every step; tests hold them to it.
package topology
