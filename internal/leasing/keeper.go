// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/registry"
)

// Addresses is this node's IPAM.
type Addresses interface {
	// Blocks returns the blocks that addresses are given from, or that pods
	// have addresses of, with their use. Single addresses among them, which are
	// those that pods have leases of, are not looked at.
	Blocks(now time.Time) ([]lease.Block, error)
	// Serve gives addresses from these leases' subnets only, from now on. It
	// drops all other blocks but those that a pod still has an address of.
	// Those it reports by an error that wraps ErrInUse: they give no new
	// address, and Blocks lists them until a later Serve can drop them.
	Serve(ctx context.Context, leases []cluster.Lease) error
}

// ErrInUse says that a block was not dropped because a pod has an address of it.
var ErrInUse = errors.New("in use by a pod")

// Config is what a Keeper needs to know.
type Config struct {
	Node      string         // this node's name
	IdleAfter time.Duration  // an extra block without pods is given back after that
	Previous  []netip.Prefix // blocks that the node had before it started, most wanted first
}

// Identity is this node's place between the nodes: what its leases tell its peers,
// and where it is no place for pods. It may change.
type Identity struct {
	Addresses []netip.Addr // at most one per family, IPv4 first
	VTEP      cluster.VTEP
	Networks  []lease.Network // this node's own: no block that overlaps one is claimed or served
}

// Times of a Keeper.
const (
	// rest is the longest time between two passes: that addresses are used and
	// released is not told by the Store.
	rest = 10 * time.Second
	// patience is how long a write may take to show in a Store that has contact.
	patience = time.Minute
	// memory is how long a demand counts: a pod that still waits for its address
	// after that has asked again.
	memory = time.Minute
	// A pass in which something failed is repeated, and until then nothing is
	// written, after a second, then two, doubling up to the limit.
	firstBackoff = time.Second
	lastBackoff  = time.Minute
)

// maxRounds limits the decisions in one pass. Each lost claim costs one.
const maxRounds = 16

// Keeper holds this node's leases. It is not safe for concurrent use, but for
// Status and Demand.
type Keeper struct {
	config    Config
	leases    registry.Leases
	addresses Addresses
	identity  func() Identity
	rejected  func() map[string]string

	view     view
	writes   writes
	previous []netip.Prefix
	served   []cluster.Lease // as IPAM accepted them last
	accepted bool            // IPAM has accepted it
	started  int64           // Unix time of the first pass in nanoseconds

	failures int                  // passes in succession in which something failed
	resume   time.Time            // nothing is written earlier
	demanded map[string]time.Time // pools, and when that was heard

	mu     sync.Mutex
	status Status
	heard  map[string]bool // pools that were demanded since the last Step
}

// New returns a Keeper that reads from the store and writes to leases. identity
// and rejected (this node's own leases that must not be used, by name) are
// asked in every pass.
func New(c Config, store *registry.Store, leases registry.Leases, addresses Addresses,
	identity func() Identity, rejected func() map[string]string) *Keeper {
	return &Keeper{
		config: c, leases: leases, addresses: addresses, identity: identity, rejected: rejected,
		view: newView(c.Node, store), writes: writes{}, previous: slices.Clone(c.Previous),
		demanded: map[string]time.Time{}, heard: map[string]bool{},
	}
}

// Demand says that a pod asks for an address of the pool, and that this node's
// blocks of it have none free. Steps of the next minute lease blocks of it until
// there are enough. It may be called at any time; it does not call for a Step.
func (k *Keeper) Demand(pool string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard[pool] = true
}

// demand returns the pools in demand, by name.
func (k *Keeper) demand(now time.Time) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for pool := range k.heard {
		k.demanded[pool] = now
	}
	clear(k.heard)
	maps.DeleteFunc(k.demanded, func(_ string, at time.Time) bool { return now.Sub(at) >= memory })
	return slices.Sorted(maps.Keys(k.demanded))
}

// Step makes one pass and returns when the next is due at the latest. What
// changes in the store, in the use of addresses, or in what the Keeper asks for
// (identity, rejected leases), calls for one at once.
func (k *Keeper) Step(ctx context.Context, now time.Time) (next time.Time) {
	k.view.update(k.writes, now)
	p := &pass{Keeper: k, now: now}
	if k.view.synced {
		p.run(ctx)
	} else {
		p.waiting = []string{"the registry has not told its state yet"}
	}
	next = now.Add(rest)
	switch {
	case len(p.errs) > 0:
		k.resume = now.Add(backoff(k.failures))
		k.failures++
		next = k.resume
	case now.Before(k.resume):
		next = earlier(next, k.resume)
	default:
		k.failures = 0
		if p.unfinished {
			next = now.Add(firstBackoff)
		}
	}
	if p.due != 0 {
		next = earlier(next, time.Unix(0, p.due))
	}
	k.report(p)
	return next
}

func backoff(failures int) time.Duration {
	return min(firstBackoff<<min(failures, 16), lastBackoff)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
