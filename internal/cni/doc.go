// SPDX-License-Identifier: Apache-2.0

// Package cni is the edge where the types of the Container Network Interface
// stop: it reads what a runtime passes to a plugin and writes what the plugin
// answers, for every released version of the specification (0.1.0 to 1.1.0).
//
// In: a Call (the CNI_* environment and standard input), checked by
// Call.Check, and a Config, made of standard input and CNI_ARGS by ParseConfig
// (for weft-cni) or ParseIPAMCall (for weft-ipam). Out: a Result in the shape
// of the request's version, an Error as the JSON object of the specification,
// or the answer to VERSION.
//
// Contract:
//
//   - What leaves this package has been validated: names fit a file name and
//     a journal field, paths are absolute and clean, addresses are net/netip
//     values without zone and never IPv4-mapped.
//   - How much is validated depends on the verb. ADD, CHECK and STATUS take
//     nothing that they do not understand. DEL refuses only a configuration
//     that it cannot attribute to a network: runtimes replay at DEL, years
//     later, what they passed at ADD to some older release.
//   - Every refusal is an *Error whose code a runtime can act on and whose
//     message names the key or variable, the value and the remedy.
//   - No message contains the words by which go-cni recognizes a missing
//     sandbox and then ignores a failed DEL.
//
// It performs no I/O, knows no kernel, no file and no clock, and keeps no
// state. Process start-up is most of what a plugin costs, so nothing is
// computed before it is asked for and no regular expression is used.
//
// It does not decide anything: addresses are chosen by package ipam, kernel
// objects by package attach.
package cni
