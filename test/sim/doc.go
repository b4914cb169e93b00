// SPDX-License-Identifier: Apache-2.0

// Package sim runs hundreds of nodes in one process, in virtual time: of each
// node the real leasing.Keeper and fabric.Fabric, around them a registry, a
// kernel and an IPAM in memory.
//
// A World is a queue of events. Which event comes next, how long a message
// takes, what goes wrong and when: everything is drawn from one generator, so
// that a seed is a run. There is no goroutine, no real clock and no sleep.
//
// # What happens
//
// Nodes join, crash, come back with an empty memory, lose contact, change their
// address or their backend, are removed for good, or lose their Node object and
// leases to a person's mistake. Registry calls are lost, happen without an
// answer, or happen long after the caller has given up. Changes reach each node
// in order per object, but otherwise as late as they like, and overtake each
// other. Kernel operations fail, or fail after having happened; devices, routes
// and entries vanish, strangers put theirs in their place. Pools change, and
// garbage leases come and go. Pods come and go all the time; some take their
// address along from node to node, with a lease of its own.
//
// # What is held against it
//
// After every event, and at the very call where it would show (check.go):
//
//   - Who gives addresses from a block has its lease, so no two live nodes give
//     addresses from one block. No two pods have one address.
//   - A block is not given back while it is served or a pod has an address of it.
//   - A node does not claim a block that is reserved as far as it can know.
//   - No kernel is written to for the cluster's sake before the process has seen
//     a complete view, and nothing there is deleted that was never ours.
//
// Two kinds of blocks are exempt: those that an outsider's lease gives to a
// node, and those whose lease an outsider has deleted while the node uses them.
// No rule that the nodes keep among themselves can prevent that; that they
// recover from it is held against them at the end.
//
// When the faults are over, the nodes have Calm to converge (converge.go): every
// kernel holds what topology.Compute says of the final registry, every node has
// a block of every family, nothing is pending, failing, stale or surplus, and
// from every node the chain of route, neighbour and FDB entry leads to every
// other one, by the same way back. What is sent to a pod that took its address
// along arrives where it is.
//
// That the simulation notices at all is tested by nodes and registries with a
// mistake in them (mutation_test.go).
package sim
