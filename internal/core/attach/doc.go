// SPDX-License-Identifier: Apache-2.0

// Package attach says what one attachment is: the connection of one container
// to one network by one interface, and what must exist in the kernel for it.
//
// It is pure. NewPlan turns a Spec (what is wanted) into a Plan (every kernel
// object of the attachment, by value); package kernel makes a plan real and
// compares reality with it. Nothing here does I/O, reads a clock or draws a
// random number: the same Spec always gives the same Plan, which is what makes
// ADD repeatable and CHECK possible.
//
// Topology: a point-to-point veth pair without a bridge. The pod holds its
// address with full prefix length (/32, /128) and sends everything to its
// gateway, which is declared on-link and whose link-layer address is a
// permanent neighbour, so it never has to ask for one. The host holds one route
// and one neighbour per pod address.
package attach
