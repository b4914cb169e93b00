// SPDX-License-Identifier: Apache-2.0

// Package wish decides what a pod gets that asks for something: an address, a
// pool, a MAC, an MTU, addresses that it keeps.
//
// # Contract
//
//   - Parse reads the annotations of weft.dev/ on a pod and its namespace. All
//     mistakes are reported, each by its annotation; an unknown annotation of
//     weft.dev/ is a mistake too, because a misspelt wish would be ignored.
//   - Resolve says which addresses to take and which leases of single addresses
//     that needs, or why the wish cannot be followed now or ever. It never gives
//     what somebody else holds, as far as the view shows; what it does not show
//     is decided by creating the lease.
//   - Holders says what IPAM must leave out when it chooses from the blocks: it
//     decides about them, and knows neither claims nor leases.
//
// # Who may have an address
//
//   - One in a block that this node gives addresses from, if nobody holds it: the
//     node's IPAM decides, under its lock. A lease of it that the pod had
//     elsewhere goes.
//   - One that a pool reserves, if the pool selects the node and creating its
//     lease succeeds: also in a block of this node, where IPAM does not give it.
//   - One that an AddressClaim keeps for this pod, wherever in a pool it is: if it
//     is in no block of this node, with a lease of its own. A lease that names the
//     same pod on another node is taken over: a namespace and a name belong to
//     one pod at a time, and this node has the present one.
//
// No other address outside of this node's blocks can be had: between the look at
// the view and the lease, the node of the block could give it to somebody else.
//
// A pod that asks for a pool gets addresses of the families that the pool has,
// one that does not of the families that this node has blocks of that need no
// request. What a claim keeps, and what an annotation asks for, must be the same,
// and in the pool that is asked for. A claim of which a family is missing is not
// extended: of that family the pod gets any address.
package wish
