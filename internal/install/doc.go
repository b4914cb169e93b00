// SPDX-License-Identifier: Apache-2.0

// Package install puts Weft on a node and takes it off again.
//
// Binaries copies the CNI plugin to where the runtime looks for it. Conflist and
// WriteConflist tell the runtime of the network; Rivals tells which other files
// it would take instead. Every file appears by rename, whole or not at all, and
// only if its content differs. WritableSysctls makes the kernel's network
// parameters writable for an agent that runs in a container.
//
// Uninstall removes everything that Weft ever made on a node, and nothing else.
// What is ours is told by the marks that package kernel describes, not by any
// record, so it works without the state directory too.
//
// # Order of Uninstall
//
// The agent must have stopped: from then on no pod can be attached (ADD fails,
// STATUS says that it would), while DEL is served by the plugin itself. Then the
// pods of this node have to go. Only then
//
//  1. the network configuration list,
//  2. routes, VXLAN devices, devices that shape traffic, nftables tables,
//  3. the state directory,
//  4. the plugin.
//
// The configuration does not go first, although no new pod should come:
// containerd serves no DEL without one, so that pods which are still there could
// never terminate. The plugin goes last for the same reason, and stays where
// another configuration names it.
//
// # What it does not do
//
// It decides nothing about when: the agent writes the list once the node is
// ready, and leaves it when it stops. It touches no object of the cluster's, no
// runtime, and no kernel parameter that Weft has set: others may rely on it.
package install
