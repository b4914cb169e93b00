// SPDX-License-Identifier: Apache-2.0

// Package wire is the conversation between weft-cni and the agent: one JSON
// message each way over a unix stream socket, then both sides close.
//
// The request carries what the runtime gave the plugin, verbatim, so that all
// understanding is on the agent's side and an older shim can serve a newer
// agent. With it goes, as a file descriptor (SCM_RIGHTS), the open namespace:
// the agent needs no view of the runtime's mounts, and a path that is reused
// between the two processes cannot lead it astray.
//
// The operator's commands ask on the same socket, which is for its owner alone:
// a Query instead of a call, answered by a report.
//
// The client side avoids package net: its poller and resolver would be a good
// part of the shim's start-up time.
package wire
