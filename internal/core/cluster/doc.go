// SPDX-License-Identifier: Apache-2.0

// Package cluster holds what a node knows of the cluster, as values: nodes,
// pools, leases, pods and namespaces, each reduced to what Weft reads.
//
// Whoever reads manifests or talks to an API server converts into these types
// and refuses what cannot be converted. What one object alone can get wrong is
// refused there; what objects can get wrong together (pools that overlap, for
// example) is judged here and in the packages lease and topology, the same way
// on every node.
package cluster
