// SPDX-License-Identifier: Apache-2.0

// Package directory is a registry without Kubernetes: a directory of ordinary
// Kubernetes manifests.
//
// # Layout
//
//	<directory>/*.yaml, *.yml, *.json          Node, Namespace, Pod, IPPool, AddressClaim
//	<directory>/<any>/*.yaml, *.yml, *.json    likewise
//	<directory>/subnetleases/<name>.yaml       SubnetLease; the file name is the claim
//	<directory>/.weft/                         lock and draft of writers
//
// A file may hold several documents and Lists. Other kinds, other files, names
// that start with a dot, and what lies deeper are somebody else's.
//
// # Reading
//
//   - A file is read when its writer has closed it, or when it was linked or
//     renamed into place, never while somebody has it open for writing: a
//     lease (fcntl F_SETLEASE) makes writers wait for the microseconds of a
//     read.
//   - Of a file only this is remembered: when it was modified, its size and
//     inode, and which objects it holds. A periodic scan by these finds what no
//     notification told.
//   - What became unreadable keeps its last good objects and is rejected: by
//     object where there is a name, else as "file x.yaml". A file with a
//     document that makes no sense loses no object: it may be half of one.
//   - Of two files that hold the same object the first by name is used. The
//     other takes over when that one lets go.
//   - Contact is lost when the path no longer leads to the directory that is
//     watched. Then nothing changes until it, or another one, has been read
//     completely. Another one without any manifest does not count: more likely
//     than not, a volume is not mounted.
//
// # Writing
//
// One writer at a time on this machine, by a lock that dies with its holder. A
// lease appears by link(2), which fails if there is one, changes by rename(2)
// and goes by unlink(2): other processes and a crash see the old or the new
// one. A file's content is on disk before its name; the name itself is not
// waited for.
package directory
