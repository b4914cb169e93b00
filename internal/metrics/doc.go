// SPDX-License-Identifier: Apache-2.0

// Package metrics tells operators and their machines how the agent fares: as
// Prometheus metrics, and as the two questions that a kubelet asks, whether the
// agent lives and whether it is ready.
//
// What happens (calls of the runtime, requests to the API server) is counted
// when it happens, by Call and Request. What is (addresses in use, leases,
// pending changes) is read when somebody looks: New is given a function that
// returns a Snapshot, and calls it once for each scrape.
//
// The contract with those who build dashboards and alerts: every metric is in
// docs/metrics.md, and no label has a value that depends on how many pods or
// nodes there are. Names of IPPools are the only values that people choose.
//
// The package knows nothing of the agent's parts; whoever fills the Snapshot in
// does. It decides neither liveness nor readiness.
package metrics
