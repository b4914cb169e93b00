// SPDX-License-Identifier: Apache-2.0

// Package leasing carries out what package core/lease decides: it claims,
// corrects and gives back this node's leases, and tells the node which blocks
// it may give addresses from.
//
// A Keeper makes one pass per Step, in the caller's goroutine, with the
// caller's clock: a test can run hundreds of them in virtual time. Lost claims
// are decided anew within the pass; a registry that fails is asked again later,
// with backoff, for ever.
//
// Leases that name a pod are others' to create and to give back; a Keeper only
// corrects those of this node.
//
// # Why two nodes never give addresses from one block
//
//   - A block is served when the registry has answered that the lease was
//     created, or shows it as this node's.
//   - A block is given back by first taking it out of the node's IPAM, and the
//     lease is deleted only when IPAM does not list it any more. From the first
//     attempt to delete it, whatever its answer, that lease (by its UID) is not
//     this node's any more, however long the registry still shows it.
//   - An answer that did not arrive leaves a claim in doubt. It is not served
//     until the registry shows it.
//
// This rests on three things: the Store never goes back to an older state of an
// object; when it says Synced for the first time in a process it is no older
// than that process; and nobody but its node deletes a lease. Where somebody
// does, the node learns it with the Store's delay, stops giving addresses from
// the block, and claims it again.
//
// A Keeper does nothing before the Store is synced: what IPAM was giving
// addresses from stays in use.
package leasing
