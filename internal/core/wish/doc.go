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
//
// # Who may have an address
//
//   - One in a block that this node has leased, if nobody holds it: the node's
//     IPAM decides, under its lock.
//   - One that a pool reserves, if creating its lease succeeds.
//   - One that an AddressClaim keeps for this pod, wherever it is: if it is in no
//     block of this node, with a lease of its own. A lease that names the same
//     pod on another node is taken over: a namespace and a name belong to one
//     pod at a time, and this node has the present one.
package wish
