// SPDX-License-Identifier: Apache-2.0

// Package convert translates between the objects of the Kubernetes API and the
// values of package core/cluster. It is where the vocabulary of Kubernetes
// ends.
//
// # Contract
//
//   - An object becomes a value or an error that lists every mistake in it, by
//     field. It does not say which object: the caller knows.
//   - Only what one object can get wrong by itself is judged. Pools that
//     overlap, or a lease of an unknown node, are judged by the core.
//   - A value shares labels with the object that it was made of; neither is
//     changed afterwards.
//   - A lease that is valid survives the way to a SubnetLease and back; but of
//     its creation only the second does, as in every Kubernetes object.
//
// It does not read or write manifests.
package convert
