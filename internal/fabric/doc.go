// SPDX-License-Identifier: Apache-2.0

// Package fabric is the node's network to all other nodes, kept as the cluster
// wants it: it feeds package topology from the registry's Store, and the
// kernel from the result.
//
// It also keeps the objects that the node itself needs for its pods: gateways
// that the host answers for, masquerading, forwarding.
//
// # What is written when
//
// Nothing is written, and nothing even read, for the cluster's sake before the
// Store is synced and SetSelf has told the node's place: until then what an
// earlier process left stays in use. After that, losing contact changes
// nothing. The node's own objects are kept from the first SetNode on; of the
// routes, these are the ones in the local table. Without a Store there is no
// cluster, and what an earlier configuration with one left is removed.
//
// # The order of kinds
//
// Parameters, devices, addresses, neighbours, FDB entries, routes,
// masquerading: when a route appears, whatever it leads through is there. What
// vanishes with a device is read again after each operation on devices.
//
// It does not watch the kernel, and does not find out the node's place; it is
// told both.
package fabric
