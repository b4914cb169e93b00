// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/registrytest"
)

var epoch = time.Unix(1_000_000, 0)

// blockSize is how many addresses the tests' blocks have, whatever they are.
const blockSize = 5

// fakeIPAM counts pods per block.
type fakeIPAM struct {
	now    time.Time
	blocks map[netip.Prefix]*fakeBlock
	// before is called at each call and makes it fail.
	before func(verb string) error
	serves int // calls of Serve
}

type fakeBlock struct {
	served    bool
	pods      int
	idleSince int64
}

func (f *fakeIPAM) Blocks(time.Time) ([]lease.Block, error) {
	if err := f.fault("blocks"); err != nil {
		return nil, err
	}
	var list []lease.Block
	for _, subnet := range slices.SortedFunc(maps.Keys(f.blocks), netip.Prefix.Compare) {
		b := f.blocks[subnet]
		one := lease.Block{Subnet: subnet, Size: blockSize, Free: uint64(blockSize - b.pods)}
		if b.pods == 0 {
			one.IdleSince = b.idleSince
		}
		list = append(list, one)
	}
	return list, nil
}

func (f *fakeIPAM) Serve(_ context.Context, leases []cluster.Lease) error {
	if err := f.fault("serve"); err != nil {
		return err
	}
	f.serves++
	for _, b := range f.blocks {
		b.served = false
	}
	for _, l := range leases {
		if f.blocks[l.Subnet] == nil {
			f.blocks[l.Subnet] = &fakeBlock{idleSince: 1}
		}
		f.blocks[l.Subnet].served = true
	}
	var err error
	for subnet, b := range f.blocks {
		switch {
		case b.served:
		case b.pods > 0:
			err = fmt.Errorf("drop %s: %w", subnet, ErrInUse)
		default:
			delete(f.blocks, subnet)
		}
	}
	return err
}

func (f *fakeIPAM) fault(verb string) error {
	if f.before == nil {
		return nil
	}
	return f.before(verb)
}

// served returns the blocks that addresses are given from, ascending.
func (f *fakeIPAM) served() []netip.Prefix {
	var list []netip.Prefix
	for subnet, b := range f.blocks {
		if b.served {
			list = append(list, subnet)
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}

// setPods changes how many pods have an address of the block.
func (f *fakeIPAM) setPods(subnet netip.Prefix, n int) {
	b := f.blocks[subnet]
	if b.pods > 0 && n == 0 {
		b.idleSince = f.now.UnixNano()
	}
	b.pods = n
}

// world is a registry and the nodes that share it.
type world struct {
	registry *registrytest.Registry
	nodes    []*node
}

// node is what one node has: the IPAM outlives the process, the rest does not.
type node struct {
	world    *world
	name     string
	ipam     *fakeIPAM
	store    *registry.Store
	feed     *registrytest.Feed
	keeper   *Keeper
	identity Identity
	rejected map[string]string
	fault    func(registrytest.Call) registrytest.Fault
}

func newWorld(pool cluster.Pool) *world {
	w := &world{registry: registrytest.New(epoch)}
	w.registry.Put(registry.Key{Kind: registry.IPPool, Name: pool.Name}, pool)
	return w
}

func smallPool() cluster.Pool {
	return cluster.Pool{Name: "default", Ranges: []cluster.PoolRange{
		{CIDR: netip.MustParsePrefix("10.42.0.0/26"), BlockBits: 29},
		{CIDR: netip.MustParsePrefix("fd00:42::/122"), BlockBits: 125},
	}}
}

func (w *world) add(name string) *node {
	n := &node{world: w, name: name, ipam: &fakeIPAM{now: w.registry.Now, blocks: map[netip.Prefix]*fakeBlock{}}}
	n.identity = Identity{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{198, 18, 1, byte(len(w.nodes) + 1)})}}
	w.nodes = append(w.nodes, n)
	w.register(name, "1")
	n.start()
	return n
}

func (w *world) register(name, uid string) {
	w.registry.Put(registry.Key{Kind: registry.Node, Name: name}, cluster.Node{Name: name, UID: uid})
}

// start begins a new process on the node, with a fresh view.
func (n *node) start() {
	n.store = registry.NewStore()
	client := n.world.registry.Client(func(c registrytest.Call) registrytest.Fault {
		if n.fault == nil {
			return registrytest.None
		}
		return n.fault(c)
	})
	n.feed = n.world.registry.Connect(n.store)
	previous := slices.SortedFunc(maps.Keys(n.ipam.blocks), netip.Prefix.Compare)
	n.keeper = New(Config{Node: n.name, IdleAfter: 10 * time.Minute, Previous: previous}, n.store, client, n.ipam,
		func() Identity { return n.identity }, func() map[string]string { return n.rejected })
}

// sync delivers everything and makes a pass.
func (n *node) sync(t *testing.T) time.Time {
	t.Helper()
	n.feed.Deliver(n.feed.Pending())
	return n.keeper.Step(t.Context(), n.world.registry.Now)
}

func (w *world) pass(d time.Duration) {
	w.registry.Now = w.registry.Now.Add(d)
	for _, n := range w.nodes {
		n.ipam.now = w.registry.Now
	}
}

// heldBy returns the subnets that a node has leases of.
func (w *world) heldBy(name string) []netip.Prefix {
	var list []netip.Prefix
	for _, l := range w.registry.Leases() {
		if l.Node == name {
			list = append(list, l.Subnet)
		}
	}
	return list
}

func leaseKey(subnet netip.Prefix) registry.Key {
	return registry.Key{Kind: registry.SubnetLease, Name: cluster.LeaseName(subnet)}
}

var errDisk = errors.New("disk full")
