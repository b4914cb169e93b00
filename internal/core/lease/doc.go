// SPDX-License-Identifier: Apache-2.0

// Package lease decides which blocks of the cluster's address space a node
// holds: which to claim, which of its leases to correct, which to give back,
// and which to give addresses from. It is a function of what the node knows;
// somebody else carries the decision out, and asks again after every result.
//
// # Contract
//
// Creating the lease object is the claim: its name is the block's, so the
// registry lets one creator win. A decision based on a stale view therefore
// costs a lost claim and never a block that two nodes hold. (Blocks of
// different sizes have different names. If a pool's block size changes while a
// node has a stale view, two leases can overlap; then the younger one is
// rejected, see package topology.)
//
//   - Where the node has PodCIDRs, its leases are exactly those, but for one that
//     overlaps a network of this node's; pools matter only for masquerading.
//   - Otherwise the node needs a block of every family that the pools which
//     select it have, and another one when the free addresses of a family run
//     low (see low). Of several pools, the first by name that has a free block.
//   - A pool with OnRequest is no part of that: a node leases a block of each of
//     its families when pods demand it, another one when they do so again and
//     it has got low, and gives each back when it is idle, the last one too. What
//     pods demand of another pool is leased likewise, and counts as any block.
//   - A pod's lease, of one address, is invisible here, but that those of this
//     node are corrected, and that no block is claimed whose gateway it is.
//   - Order of choice: blocks that the node held before (its pods may have
//     addresses there); blocks that nobody was seen to release, starting at a
//     place that depends on the node, so that nodes that start together seldom
//     race and a released block is seldom reused soon; released ones, the
//     longest released first. Never a block that overlaps an existing lease,
//     rejected or not, or a network of this node's, or that contains the address
//     of a node, or in which every address is reserved.
//   - A block that the node gives addresses from, or whose addresses its pods
//     have, is claimed again when its lease is gone. Where somebody else has it
//     meanwhile, that is said.
//   - A block that no pod has had an address of for IdleAfter is given back,
//     if it is not the family's last and the others have twice the free
//     addresses below which the node would claim again.
//   - A lease that the node would not claim today (its pool is gone, does not
//     select the node any more, or the node has PodCIDRs now) is outdated. It is
//     served as long as there is none better for what the node needs, then
//     drained, and given back when no pod has an address of it.
//   - A rejected lease is not served; nor is one that overlaps a network of this
//     node's. The node claims another block, but not of a pool of which it has
//     three of those that no pod has an address of: other pools go on. Such a
//     lease is given back: at once if the node would not claim the block today,
//     else after rejectedFor, so that claiming and rejecting does not go round in
//     circles.
//   - A lease that no longer says what peers need (node addresses, VTEP, the
//     node's UID, the pool) is corrected.
//   - With no reachable registry the node keeps what it has and decides
//     nothing new. The same where the registry does not know the node.
//
// It keeps no state and reads no clock. What the node's own place forbids it
// judges as package topology does; why else a lease is rejected it does not know.
package lease
