// SPDX-License-Identifier: Apache-2.0

// Package registrytest is a registry in memory for tests and simulations: one
// Registry, any number of stores that see its changes as late as the test
// wants, and any number of clients whose calls fail as the test wants.
//
// Nothing in it runs by itself, reads a clock or draws a random number: the
// same calls give the same states. It is not safe for concurrent use.
package registrytest
