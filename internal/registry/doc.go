// SPDX-License-Identifier: Apache-2.0

// Package registry is where cluster state comes from and where leases are
// claimed.
//
// A Source (a directory of manifests; the Kubernetes API) reads objects,
// converts them to values of package core/cluster, and feeds a Store. The
// Store holds the latest state of each object and tells its subscribers which
// objects changed; who is slow sees several changes as one. Leases is the
// writing side.
//
// # Contract of a Source
//
//   - It says Synced once the Store holds everything that there is. Nobody
//     acts on an incomplete view.
//   - An object that cannot be understood is a rejection by name; its last good
//     version stays, until the object is gone.
//   - When it loses contact it says so (Unreachable) and changes nothing.
package registry
