// SPDX-License-Identifier: Apache-2.0

// Package kubernetes is the registry on the Kubernetes API.
//
// # Reading
//
// Six kinds are followed, each by a reflector of client-go: all Nodes,
// Namespaces, IPPools, SubnetLeases and AddressClaims, and the Pods of this
// node. An object is converted when it is decoded; the Store holds the values,
// and nothing else is kept: no cache of API objects, no labels of other nodes.
// A change is applied only if the value differs from what the Store has, so
// that a peer's heartbeat costs its decoding and no more.
//
//   - The first view, like every other, is no older than its request. It comes
//     as a stream of one object after the other (sendInitialEvents), or, from
//     servers that have no such streams, in pages of a consistent list; never
//     with resourceVersion 0, which may be answered from any past. Servers since
//     Kubernetes 1.34 serve both from their memory, at the price of one small
//     request to etcd, so that thousands of nodes may start at once. Package
//     leasing rests on it.
//   - When a watch breaks it is resumed where it broke. Where the server has
//     forgotten that place, everything is read again; what is not there any
//     more is removed. The Store never goes back to an older state, with one
//     exception: an API server whose etcd was restored from a backup is right.
//   - An object that cannot be understood is a rejection by name, its last good
//     version stays, and no other object suffers.
//   - Synced: every kind has been read completely. Unreachable: for some kind
//     the last attempt failed, and has done so for contactGrace. A connection
//     on which nothing arrives any more breaks within 45 s (HTTP/2 ping).
//     Attempts go on for ever, at most 30 s apart. While the definitions of
//     Weft's kinds are not installed, the reason says so.
//
// # Writing
//
// What the API server answers to a successful write goes to the Store at once.
// A watch may be ahead of that answer or behind it; resource versions of one
// resource are ordered numbers (KEP-5504, Kubernetes 1.35), by which the older
// one of the two is dropped. What was deleted leaves the Store at once too. Such
// an answer has no version; what a watch that is behind tells of the object is
// known by its UID.
//
// Before a node claims a block it lists all claims, and puts what its watch has
// not brought yet into the Store: who had the block before may have left
// addresses of it that pods keep. If that fails the block is not claimed.
//
// A request has requestTimeout, repetitions included. It is repeated if it
// surely did nothing (connection refused, 429), or if repeating it is harmless,
// which a create is not: after one whose answer was lost, "exists already" says
// nothing of whose it is. Retry-After is honoured.
//
// # Load
//
// Requests are limited to 50 in a second, and 100 at once: as many as a
// kubelet's, which is what makes pods. In normal operation there are six
// watches, and a list of claims for each block; the limit is for what nobody
// thought of. Fairness between nodes is the API server's.
//
// testdata/clusterrole.yaml has the permissions that all this needs.
package kubernetes
