// SPDX-License-Identifier: Apache-2.0

// Package kubectl runs the operator's commands on the nodes of a cluster, from
// anywhere that kubectl works: each command is executed in the agent's pod of
// each node, because what a node knows of its network is there.
//
// It interprets nothing of the commands, and prints what they print. Standard
// output has nothing else: with -o json it is one JSON document for each node, in
// the order of their names.
package kubectl
