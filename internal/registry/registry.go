// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"net/netip"

	"weft.dev/weft/internal/core/cluster"
)

// Cluster is a registry: both sides of it.
type Cluster interface {
	Source
	Leases
}

// Source feeds a Store.
type Source interface {
	// Run feeds the Store until ctx ends. It returns an error only for what
	// no repetition can mend, such as a configuration that makes no sense.
	Run(ctx context.Context, into *Store) error
}

// Pods is what only a registry has that knows pods and what becomes of them: the
// Kubernetes API.
type Pods interface {
	// Pod reads one pod, past the Store; ErrGone if there is none.
	Pod(ctx context.Context, namespace, name string) (cluster.Pod, error)
	// PodWith returns the pod that has an address, as its status says, as
	// "namespace/name"; "": none. It may read all pods: for rare occasions.
	PodWith(ctx context.Context, a netip.Addr) (string, error)
	// KeepAddresses creates a claim; ErrExists if there is one of that name.
	KeepAddresses(ctx context.Context, c cluster.Claim) error
	// MarkReady takes from this node's object what says that its network is
	// not: the condition NetworkUnavailable and the taint
	// weft.dev/agent-not-ready. It writes nothing if neither is there.
	MarkReady(ctx context.Context) error
	// Report tells the users of an object what happened to it, as an Event. It
	// returns at once, repeats few times, and drops what is too much.
	Report(e Event)
}

// Event is news of one object, for its users.
type Event struct {
	// Pod, if its Name is set, is what the news is about; otherwise this node.
	Pod     cluster.Pod
	Warning bool
	Reason  string // in CamelCase, for machines: "AddressInUse"
	Message string // for people: what, why, what to do
}

// Leases claims, corrects and gives back. A call that returns another error
// than those below may have happened or not.
type Leases interface {
	// Create returns ErrExists if there is a lease of that name, ErrUntried if
	// nothing was written. Once it has created that of a block, the Store has
	// every claim that was there when it began: who gave the block up may have
	// left addresses of it that pods keep.
	Create(ctx context.Context, l cluster.Lease) error
	// Replace writes l over the lease with its name, UID and Version; it
	// returns ErrConflict if there is another version or none.
	Replace(ctx context.Context, l cluster.Lease) error
	// Delete removes the lease with l's name and UID; ErrConflict if there is
	// one with another UID or that another node holds, nil if there is none.
	Delete(ctx context.Context, l cluster.Lease) error
}

// Outcomes that a caller decides by.
var (
	ErrExists   = errors.New("exists already")
	ErrConflict = errors.New("was changed by somebody else")
	ErrGone     = errors.New("there is none (any more)")
	ErrUntried  = errors.New("nothing was written")
)
