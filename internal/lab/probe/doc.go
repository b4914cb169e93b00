// SPDX-License-Identifier: Apache-2.0

// Package probe asks a network the questions that the demonstration and the
// tests have: does this address answer a ping, does this port answer and as
// whom does it see me. It exists so that neither needs a tool installed.
//
// All functions work in the network namespace of the calling thread or
// process; they are meant to be run through `weft lab exec`.
package probe
