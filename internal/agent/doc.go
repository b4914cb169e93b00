// SPDX-License-Identifier: Apache-2.0

// Package agent is the node daemon: it owns the journal, answers weft-cni over
// a unix socket, keeps the node's own objects up, and collects garbage.
//
// Start-up is recovery: the agent takes the journal, undoes or finishes what a
// dead process left half done, brings the node's objects up, and only then
// listens. Stopping leaves everything in place: pods keep their network, and
// what enforces something goes on enforcing it.
//
// This is a composition root: it wires the engine, the kernel, the journal and
// the CNI verbs together, and logs what they report.
package agent
