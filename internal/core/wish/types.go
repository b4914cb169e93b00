// SPDX-License-Identifier: Apache-2.0

package wish

import (
	"net/netip"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
)

// Annotations of a pod; Pool also of a namespace, where a pod has none.
const (
	IPv4   = "weft.dev/ipv4"   // an address: 10.42.3.7
	IPv6   = "weft.dev/ipv6"   // an address: fd00:42::7
	Pool   = "weft.dev/pool"   // name of an IPPool
	MAC    = "weft.dev/mac"    // unicast EUI-48: 02:01:02:03:04:05
	MTU    = "weft.dev/mtu"    // bytes, 68 to 65535; at least 1280 with IPv6
	Sticky = "weft.dev/sticky" // "true": the pod of this name keeps its addresses
)

// Wish is what a pod asks for. The zero Wish asks for nothing.
type Wish struct {
	Addresses []netip.Addr // at most one per family, IPv4 first
	Pool      string
	MAC       attach.MAC
	MTU       int // bytes; 0: the network's
	Sticky    bool
}

// View is what the node knows when it decides. It is read, never changed.
type View struct {
	Node   string
	Labels map[string]string // of the Node
	Pod    cluster.Pod
	Pools  []cluster.Pool           // accepted ones
	Served []cluster.Lease          // this node's blocks
	Leases map[string]cluster.Lease // all, by name
	Claims map[string]cluster.Claim // all, by "namespace/name"
	// PoolRefused says why the pool that the pod asks for is none of Pools although
	// there is one of that name.
	PoolRefused string
}

// Answer is what to do.
type Answer struct {
	// Blocks are this node's blocks that the pod may get addresses from, in the
	// order of Served: of a family in which it must get an address, the one block
	// that the address is in, or none if the address has a lease of its own.
	Blocks []cluster.Lease
	// Addresses are those that it must get, IPv4 first; of a family without one,
	// any of Blocks that is free.
	Addresses []netip.Addr
	// Lease are leases of single addresses to create, and TakeOver those that
	// exist for this pod on another node and are to be replaced, before the pod
	// starts. Node, NodeUID, Addresses and VTEP are the caller's to fill in.
	Lease, TakeOver []cluster.Lease
	// Drop are leases of single addresses of this pod that are in the way,
	// because the address is in a block of this node.
	Drop []cluster.Lease
	// Keep: once the addresses are granted, a claim is to record them.
	Keep bool
	// Demand names a pool that this node must first lease a block of, for what
	// is free there is not enough; "": none. Then there is nothing else.
	Demand string
}

// Reasons of a RefusedError.
const (
	InvalidAnnotation       = "InvalidAnnotation"       // one of weft.dev/ that says nothing sensible
	UnknownPool             = "UnknownPool"             // there is no such pool in use; or it is refused
	PoolNotForNode          = "PoolNotForNode"          // the node may not have addresses of the pool
	AddressOutsidePools     = "AddressOutsidePools"     // or outside of the one that is asked for
	AddressUnusable         = "AddressUnusable"         // a block's network, gateway or broadcast address
	AddressInUse            = "AddressInUse"            // another pod has it, or keeps it
	AddressOnOtherNode      = "AddressOnOtherNode"      // it is in another node's block
	AddressNotReserved      = "AddressNotReserved"      // it is in no block that this node gives addresses from
	ClaimDiffers            = "ClaimDiffers"            // from the address that is asked for
	StickyWithoutController = "StickyWithoutController" // nothing would outlive the pod
)

// RefusedError says why a wish cannot be followed. Reason is a word in
// CamelCase, as Kubernetes events have it.
type RefusedError struct {
	Reason string
	Msg    string // names the annotation, its value, what was found, and what to do
}

func (e *RefusedError) Error() string { return e.Msg }
