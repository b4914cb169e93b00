// SPDX-License-Identifier: Apache-2.0

// Package probe asks a network the questions that the demonstration and the
// tests have: does this address answer a ping, does this port answer, as whom
// do they see me, and does a stream between two pods lose anything. It exists
// so that neither needs a tool installed.
//
// Sockets are opened in the network namespace of the calling thread and stay
// in it; used they may be from anywhere.
package probe
