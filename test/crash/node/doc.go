// SPDX-License-Identifier: Apache-2.0

// Package node gives tests a Kubernetes node without Kubernetes: a network
// namespace that looks like a host, a state directory, sandboxes, the plugin
// and the agent as separate processes that can be killed.
//
// Run executes the tests once more in mount, network and process namespaces of
// their own. The machine's interfaces and files are out of their reach, and
// however they end, the kernel takes everything back: namespaces, mounts, and
// every process that is still alive.
//
// What the package observes (View) comes from the kernel and from the journal's
// file, never from the programs that are tested.
package node
