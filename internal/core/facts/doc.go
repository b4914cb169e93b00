// SPDX-License-Identifier: Apache-2.0

// Package facts is what Weft must not forget about its attachments and address
// reservations, as a value that a journal of text entries adds up to.
//
// It is pure: no file, no clock. Package journal keeps the entries; every
// entry carries its own time in unix nanoseconds, so replaying a journal gives
// the same facts at any later moment.
//
// # Life of a record
//
//	intent ──► Intent ── complete ──► Complete
//	             │                       │          reserve ──► Complete
//	             ├────── releasing ──────┤
//	             │                       ▼
//	             │                   Releasing
//	             └────── released ───────┴──► gone, addresses freed
//
// An intent (or a reservation) for a key that has a record already replaces
// it: that is a retry after a process died. Suspicion (suspect, cleared) is a
// remark of garbage collection beside the phase.
//
// # Invariants
//
//   - A record holds its addresses from its first entry until the entry that
//     ends it. Within one address scope no address has two holders. All
//     attachments of weft-cni share one scope, because they share the host's
//     routing table; reservations made for other plugins have one scope per
//     network name.
//   - Apply validates an entry completely and then changes the facts, or
//     returns an error and changes nothing. So each prefix of a valid journal
//     is valid.
//   - Replaying Entries gives equal facts, including the order in which
//     addresses were released.
//
// # Entries
//
// One line each: fields separated by single spaces, JSON last. K is
// network/containerID/ifname, A a comma-separated list of addresses or "-".
//
//	intent <at> K <kind> A {detail}
//	complete <at> K
//	reserve <at> K ipam A {detail}
//	releasing <at> K
//	released <at> K
//	suspect <at> K
//	cleared <at> K
//	config <at> {config}
//	record <phase> <created> <since> <suspect> K <kind> A {detail}
//	freed <at> <kind> <network, "-" for veth> <address>
//
// The last two are written by compaction only. Replay does not look into the
// JSON beyond its outer braces: a journal of thousands of records is replayed
// by every short-lived process, and few of its records are ever looked at.
//
// # What it does not do
//
// It does not keep the CNI result: package plugin derives it from the detail.
// It does not choose addresses (package ipam), nor decide what is dead
// (package engine). Facts is not safe for concurrent use; the journal's
// transactions guard it.
package facts
