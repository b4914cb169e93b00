// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on this machine: etcd, the API
// server, the controllers and the scheduler, and nodes with containerd, runc,
// kubelet and kube-proxy. Tests and `make cluster` use it.
//
// # Hosts
//
// A host (the control plane, or a node) is one process, the holder, in PID,
// mount, network, UTS, IPC and cgroup namespaces of its own. Everything that runs on the
// host runs in these namespaces, so killing the holder is pulling the plug: the
// kernel kills every process of the host and gives back its mounts, links and
// pods' network namespaces. No namespace has a name and nothing is mounted in
// the machine's own mount namespace.
//
//	machine                 cp                          node1
//	127.0.0.1:PORT ─fd─▶ forward ─▶ kube-apiserver
//	                     etcd …        br0 198.18.0.1 ──▶ eth0 198.18.0.11
//
// The mount namespace shows the machine's files, with directories of the host
// bound over the paths that Kubernetes uses (/etc/cni, /opt/cni,
// /var/lib/kubelet, /var/lib/containerd, /var/log) and overlays over /etc, /opt
// and /var, so stock manifests with stock paths work on every node. All mounts
// of a host are shared, as a kubelet needs.
//
// # The machine
//
// Besides processes a cluster takes of the machine: the directory Options.Dir,
// one TCP port on 127.0.0.1, and a cgroup weft-ID in every hierarchy. Clusters
// in different directories do not see each other, and use the same addresses.
//
// # Crash safety
//
// A holder is recognized by the mark in its environment, which names the
// directory. Load therefore finds a cluster whose creator was killed at any
// moment, and Down removes it.
//
// # What it does not do
//
// It installs no CNI plugin but the reference loopback: nodes are NotReady until
// the caller brings a network. It needs root, cgroup hierarchies of version 1, and the Debian packages iproute2,
// nftables, iptables, busybox-static, iperf3 and (to build runc) libseccomp-dev, gcc.
package cluster
