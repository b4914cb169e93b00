// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the types of Weft's API group, weft.dev/v1alpha1, as
// users write them: with defaults and validation, in the vocabulary of
// Kubernetes. Inside Weft they are translated once, at the edge.
//
// IPPool and SubnetLease live in the cluster (docs/api.md); AgentConfiguration
// is a file on each node (docs/configuration.md). Validation judges one object
// by itself and lists everything that is wrong with it.
//
// +groupName=weft.dev
package v1alpha1

// Group and Version of every kind in this package.
const (
	Group      = "weft.dev"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
)
