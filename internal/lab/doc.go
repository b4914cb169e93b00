// SPDX-License-Identifier: Apache-2.0

// Package lab builds a pod network of one or many nodes on one machine, without
// Kubernetes: every node, and the world outside them, is a network namespace;
// each node runs a real agent; pods are attached by the real plugin binaries,
// executed through libcni as a container runtime does it. The cluster's state
// is a directory of manifests.
//
// # Contract
//
// Everything that a lab makes is below its directory (<root>/<name>), inside
// its own namespaces, or a process inside one of these. Nothing else on the
// machine is read for a decision or changed, no link, route, rule, sysctl or
// file, except that Up reads the kernel's limit of inotify instances. Down
// leaves the machine as it was, whatever happened before: a command killed
// half-way, an agent killed, a directory half made.
//
// # Layout of a lab's directory
//
//	spec.json          what was asked for; written last but one by Up
//	ready              empty; present when Up came to its end
//	netns/<name>       one bind mount per namespace: outside, node1, each pod
//	nodes/<name>.json  one record per node, written before its namespace is
//	                   made and removed after everything else of it
//	pods/<name>.json   one record per pod, written before its ADD
//	<node>/            agent.yaml, agent.log, state/, cni/ (the cache of
//	                   libcni), network.conflist
//	registry/          pool.yaml and nodes/<name>.yaml by the lab, the rest by
//	                   the agents; a thin lab has none
//
// # Invariants
//
//   - A namespace is pinned before anything is put into it, and a pod's or
//     node's record is written before its namespace is made, so what a crash
//     leaves behind can be found from the directory.
//   - What can be asked is not recorded: whether a link is cut is the kernel's
//     answer, an agent is the process that runs with the node's configuration
//     in the node's namespace.
//   - A process is signalled only through a pidfd whose start time was
//     compared after opening, or that was found inside a namespace of the lab.
//   - Every command holds a lock on the directory itself: changing ones alone,
//     reading ones together. The kernel drops the lock with its holder.
//
// # What it does not do
//
// It does not stand in for a Kubernetes cluster (no API server, no kubelet, no
// containers: a pod is a network namespace), and it limits neither memory nor
// processor time. Processes in the lab see the machine's own file system; in
// particular /sys/class/net shows the machine's links, not the pod's.
package lab
