// SPDX-License-Identifier: Apache-2.0

// Package engine carries attachments through their life: it takes addresses,
// records facts, has the kernel changed, and undoes all of it.
//
// It is the one implementation behind every door: the thin plugin, the agent,
// the shim that serves DEL while the agent is down, weft-ipam, the operator's
// commands and garbage collection. The doors differ only in the Store they
// bring (owned for a process's life, or locked per transaction) and in whether
// interfaces are removed before DEL returns or by the Reaper just after.
//
// Invariants, at every instant and through a SIGKILL at any instruction:
//
//   - Nothing of ours exists in the kernel without a record: the intent is
//     written before the first kernel call, the release after the last.
//   - An address is never free while an interface may still hold it: it is
//     freed by the same entry that ends the record, and that entry is written
//     only once the interface is gone.
//   - A port of the host has one holder, from the intent until the record ends.
//   - Operations on one key are serialized, across processes; a record in phase
//     Intent or Releasing whose key lock can be taken was left by a process
//     that died, and whoever takes the lock finishes or undoes it.
//
// The engine does not log; it returns what it did. It does not parse CNI.
package engine
