// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"net/netip"

	"weft.dev/weft/internal/core/cluster"
)

// Input is what a node knows when it decides.
type Input struct {
	Now int64 // Unix time in nanoseconds
	// Started is since when the node knows about the use of addresses: no
	// block counts as idle from an earlier time on.
	Started int64
	Node    *cluster.Node // nil: the registry does not know this node (yet)
	Name    string        // of this node

	Pools    []cluster.Pool           // accepted ones, by name
	Leases   map[string]cluster.Lease // all that the registry has, by name
	Rejected map[string]string        // why this node's leases of these names must not be used
	Nodes    map[string]cluster.Node  // all that the registry has, by name; only for their addresses
	Networks []Network                // this node's own
	// Reachable: the view is complete and the registry takes writes, as far as
	// is known.
	Reachable bool

	// Demand names pools that pods here ask for and that have too few free
	// addresses in the blocks of this node.
	Demand    []string
	Blocks    []Block        // the blocks that the node gives addresses from, or whose addresses its pods have
	Previous  []netip.Prefix // blocks that the node held before, most wanted first
	Released  []netip.Prefix // blocks that anybody was seen to release, the longest released first
	Taken     []netip.Prefix // claims that the registry refused although the view has no such lease
	Addresses []netip.Addr   // this node's, for its leases; at most one per family
	VTEP      cluster.VTEP   // this node's, for its leases
	IdleAfter int64          // nanoseconds
}

// Block is a block as the node's IPAM sees it.
type Block struct {
	Subnet netip.Prefix
	Size   uint64 // addresses that pods can get; saturated
	Free   uint64 // of them, neither in use nor kept for pods nor cooling down; saturated
	// IdleSince is when the last address was released, in Unix nanoseconds, or
	// any earlier time if that is not known; 0 while there is one in use.
	IdleSince int64
}

// Decision is what to do. Claims are independent of each other; each may be
// lost, and then the block goes into Taken and the node decides again.
type Decision struct {
	Serve   []cluster.Lease // to give addresses from, ascending; all are this node's
	Claim   []cluster.Lease // to create
	Update  []cluster.Lease // to replace by this content
	Release []cluster.Lease // to delete, once IPAM has dropped them
	Waiting []string        // why the node lacks what it needs, for people
	// Next is when time alone may change the decision, in Unix nanoseconds; 0:
	// never.
	Next int64
}
