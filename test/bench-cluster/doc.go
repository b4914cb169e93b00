// SPDX-License-Identifier: Apache-2.0

// Command bench-cluster measures what pods of a real Kubernetes cluster notice of
// Weft: how long containerd waits for their network, and how long they take from
// creation to Ready, against the same cluster with the reference plugins ptp and
// host-local; what the agent asks of the API server for a pod; and what it
// occupies on a full node of a large cluster.
//
//	go run ./test/bench-cluster [-quick] [-report FILE]
//
// It prints one line "bench NAME VALUE UNIT" per result, and with -report it
// writes them as a page with method, spread and machine. A missed target is a
// result, not a failure: the exit status is 0 unless something broke.
//
// # Method
//
// Both clusters run at the same time, each of a control plane and one node, and
// take turns: in each round each of them starts all pods at once and, when all
// are Ready, deletes them, and the one that began the last round is second in
// the next. Meanwhile the other one is idle. So what the machine does otherwise,
// and drifts, hits both alike.
//
// A ratio is one of two values of the same round; reported is the median over
// the rounds, with the least and the greatest.
//
// For the memory, thousands of pods are objects whose nodes are objects only:
// they cost the agent what a real one would, for an agent sees other nodes' pods
// and leases nowhere but in the API.
//
// # What it does not do
//
// It does not test: that every pod got ready and went is all that is checked.
// There is no traffic. ADD and DEL alone are what test/bench measures.
package main
