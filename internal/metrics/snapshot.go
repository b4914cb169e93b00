// SPDX-License-Identifier: Apache-2.0

package metrics

import "time"

// Snapshot is the state at one moment.
type Snapshot struct {
	Ready       bool // as /readyz says
	Pools       []Pool
	Attachments []Attachments
	Leases      Leases
	Registry    Registry
	Kinds       []Kind // of kernel objects

	JournalRecords int   // attachments and reservations on record
	JournalBytes   int64 // size of the journal's file
	Reaping        int   // interfaces whose DEL is answered and that are still to be removed

	Collected []Collected // since the agent started
}

// Pool is what this node's blocks of one pool hold in one family. The sums are
// those of ipam.Stats.
type Pool struct {
	Pool    string // name of the IPPool; "" for the node's own pod CIDRs
	Family  string // "ipv4" or "ipv6"
	Size    uint64 // addresses that pods can get; saturated
	Used    uint64 // of these
	Kept    uint64 // of these: unused, and kept for certain pods
	Cooling uint64 // of these: free, and given last
	Foreign uint64 // used, but not to be given any more
}

// Attachments counts the records in one phase.
type Attachments struct {
	Phase string // of facts.Phase
	Count int
}

// Leases counts subnet leases as this node sees them.
type Leases struct {
	Own      int // that this node gives addresses from
	Others   int // of other nodes
	Rejected int // that no way leads to
}

// Registry is the contact with the API server, or whatever stands for it.
type Registry struct {
	Configured bool      // false: this is a node of its own, and the rest is zero
	Contact    bool      // what the registry says arrives
	Since      time.Time // of the contact, or of its loss
	Rejected   int       // objects that are refused
}

// Kind is the state of one kind of kernel objects, from reconcile.Status.
type Kind struct {
	Kind     string
	Desired  int
	Pending  int // not as desired yet, failing ones included
	Failing  int // tried, and to be tried again
	InSync   bool
	Lag      time.Duration // age of the oldest change that is not applied; 0: all are
	ReadTook time.Duration // the last reading of the kernel
}

// Collected counts what garbage collection did.
type Collected struct {
	Action string // of engine.Finding
	Count  uint64
}
