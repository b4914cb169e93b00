// SPDX-License-Identifier: Apache-2.0

// Package kubectl runs the operator's commands on the nodes of a cluster, from
// anywhere that kubectl works: each command is executed in the agent's pod of
// each node, because what a node knows of its network is there.
//
// # Which nodes
//
// The one that is named; or the one that runs the pod that the command is about;
// or all. A node whose agent does not run is not asked: why it does not run is
// said in words, from the status of its pod. A node without an agent's pod is
// mentioned and is no failure, because a DaemonSet may leave nodes out on purpose.
//
// # What is printed
//
// One node that was chosen: what it prints, and nothing else. All nodes, as a
// table: what each of them prints, as soon as it is there, in the order of their
// names, under a heading "==> NODE". Headings are on standard output, so that a
// file or a pipe still tells whose lines they are; errors are on standard error and
// name their node. All nodes, as JSON or YAML: one document, a list in the order of
// the nodes' names with what each of them said, or why it said nothing.
//
// It interprets nothing of what commands print.
package kubectl
