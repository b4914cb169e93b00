// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mode is how operations fare.
type mode int

const (
	works    mode = iota
	once          // fails once
	always        // fails until healed
	happened      // fails once, after having happened
	modes
)

var errKernel = errors.New("kernel says no")

// awaiting is the error of a key that somebody will let go.
type awaiting struct{}

func (awaiting) Error() string { return "a former sandbox has it" }
func (awaiting) Awaits() bool  { return true }

// kernel is what all drivers write to: where a device is touched, everything
// on it is lost.
type kernel struct {
	mu         sync.Mutex
	sysctls    fake[topology.SysctlKey, topology.Sysctl]
	links      fake[topology.LinkKey, topology.Link]
	addresses  fake[topology.AddressKey, topology.Address]
	neighbours fake[topology.NeighbourKey, topology.Neighbour]
	fdb        fake[topology.FDBKey, topology.FDB]
	routes     fake[topology.RouteKey, topology.Route]
	nat        fake[topology.NATKey, topology.NAT]
}

// fake is a Driver of one kind.
type fake[K delta.Key[K], V comparable] struct {
	mu      *sync.Mutex
	have    map[K]V
	foreign map[K]bool // keys that somebody else has
	awaited map[K]bool // keys that somebody else has and will let go
	mode    mode       // of the next operation, or of all
	blind   error      // of Observe
	touched func(K)

	reads, ops int
}

func newFake[K delta.Key[K], V comparable](mu *sync.Mutex) fake[K, V] {
	return fake[K, V]{mu: mu, have: map[K]V{}, foreign: map[K]bool{}, awaited: map[K]bool{}, touched: func(K) {}}
}

func newKernel() *kernel {
	k := &kernel{}
	k.sysctls = newFake[topology.SysctlKey, topology.Sysctl](&k.mu)
	k.links = newFake[topology.LinkKey, topology.Link](&k.mu)
	k.addresses = newFake[topology.AddressKey, topology.Address](&k.mu)
	k.neighbours = newFake[topology.NeighbourKey, topology.Neighbour](&k.mu)
	k.fdb = newFake[topology.FDBKey, topology.FDB](&k.mu)
	k.routes = newFake[topology.RouteKey, topology.Route](&k.mu)
	k.nat = newFake[topology.NATKey, topology.NAT](&k.mu)
	k.links.touched = func(dev topology.LinkKey) { k.wipe(string(dev)) }
	return k
}

func (k *kernel) wipe(dev string) {
	maps.DeleteFunc(k.addresses.have, func(a topology.AddressKey, _ topology.Address) bool { return a.Dev == dev })
	maps.DeleteFunc(k.neighbours.have, func(n topology.NeighbourKey, _ topology.Neighbour) bool { return n.Dev == dev })
	maps.DeleteFunc(k.fdb.have, func(e topology.FDBKey, _ topology.FDB) bool { return e.Dev == dev })
	maps.DeleteFunc(k.routes.have, func(_ topology.RouteKey, r topology.Route) bool { return r.Dev == dev })
}

// lose deletes a device, as somebody else would, and says so.
func (k *kernel) lose(f *Fabric, dev topology.LinkKey) {
	k.mu.Lock()
	delete(k.links.have, dev)
	k.wipe(string(dev))
	k.mu.Unlock()
	f.Noticed(Links, dev, nil, true)
}

func (k *kernel) drivers() Drivers {
	return Drivers{
		Sysctls: &k.sysctls, Links: &k.links, Addresses: &k.addresses, Neighbours: &k.neighbours,
		FDB: &k.fdb, Routes: &k.routes, NAT: &k.nat,
	}
}

// clusterUse counts what was done to the kinds that are the cluster's alone.
func (k *kernel) clusterUse() int {
	return k.links.reads + k.addresses.reads + k.neighbours.reads + k.fdb.reads +
		k.links.ops + k.addresses.ops + k.neighbours.ops + k.fdb.ops
}

func (f *fake[K, V]) Observe() (map[K]V, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.blind != nil {
		return nil, f.blind
	}
	return maps.Clone(f.have), nil
}

func (f *fake[K, V]) Apply(ops []delta.Op[K, V]) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(ops))
	for i, op := range ops {
		f.ops++
		errs[i] = f.one(op)
	}
	return errs
}

func (f *fake[K, V]) one(op delta.Op[K, V]) error {
	was := f.mode
	if was != always {
		f.mode = works
	}
	switch {
	case was == once || was == always:
		return errKernel
	case f.foreign[op.Key] && op.Verb != delta.Delete:
		return errors.New("something foreign is in the way")
	case f.awaited[op.Key] && op.Verb != delta.Delete:
		return awaiting{}
	case op.Verb == delta.Delete:
		delete(f.have, op.Key)
	default:
		f.have[op.Key] = op.Want
	}
	f.touched(op.Key)
	if was == happened {
		return errKernel
	}
	return nil
}

// world is a Fabric between a store and a kernel, in virtual time.
type world struct {
	*Fabric
	kernel *kernel
	store  *registry.Store
	self   topology.Self
	node   Node
	now    time.Time
}

func newWorld() *world {
	w := &world{kernel: newKernel(), store: registry.NewStore(), self: self(), node: node("10.42.0.1/32"), now: time.Unix(1_000_000, 0)}
	w.Fabric = New(w.store, w.kernel.drivers())
	return w
}

// running is a world in which everything is known and in sync.
func running(t testing.TB, peers int) *world {
	t.Helper()
	w := newWorld()
	for i := range peers {
		w.store.Apply(join(i)...)
	}
	w.store.Synced(w.now)
	w.SetSelf(w.self)
	w.SetNode(w.node)
	w.run(time.Second)
	w.same(t)
	return w
}

// run lets time pass, with a Step whenever one is due.
func (w *world) run(d time.Duration) (steps int) {
	end := w.now.Add(d)
	next := w.Step(w.now)
	for steps = 1; !next.IsZero() && !next.After(end); steps++ {
		if steps > 100_000 {
			panic("busy loop")
		}
		if next.After(w.now) {
			w.now = next
		}
		next = w.Step(w.now)
	}
	w.now = end
	return steps
}

// same holds the kernel to what the definition says.
func (w *world) same(t testing.TB) {
	t.Helper()
	if diff := w.differs(); diff != "" {
		t.Fatalf("the kernel does not hold what is wanted (-want +kernel):\n%s", diff)
	}
}

func (w *world) differs() string {
	nodes, leases := map[string]bool{}, []cluster.Lease{}
	if w.store != nil {
		w.store.View(func(s *registry.State) {
			for name := range s.Nodes {
				nodes[name] = true
			}
			for _, l := range s.Leases {
				leases = append(leases, l)
			}
		})
	}
	var want topology.Objects
	if w.store != nil {
		want, _ = topology.Compute(w.self, nodes, leases)
	}
	routes := maps.Clone(want.Routes)
	if routes == nil {
		routes = map[topology.RouteKey]topology.Wanted[topology.Route]{}
	}
	maps.Copy(routes, w.node.Routes)

	k := w.kernel
	k.mu.Lock()
	defer k.mu.Unlock()
	return compare(k.sysctls.have, w.node.Sysctls) + compare(k.links.have, want.Links) +
		compare(k.addresses.have, want.Addresses) + compare(k.neighbours.have, want.Neighbours) +
		compare(k.fdb.have, want.FDB) + compare(k.routes.have, routes) + compare(k.nat.have, w.node.NAT)
}

func compare[K comparable, V comparable](have map[K]V, want map[K]topology.Wanted[V]) string {
	values := map[K]V{}
	for k, w := range want {
		values[k] = w.Value
	}
	if maps.Equal(values, have) {
		return ""
	}
	text := func(m map[K]V) map[string]string {
		lines := map[string]string{}
		for k, v := range m {
			lines[fmt.Sprintf("%v", k)] = fmt.Sprintf("%v", v)
		}
		return lines
	}
	return cmp.Diff(text(values), text(have))
}

func self() topology.Self {
	return topology.Self{
		Node: "self",
		Underlay: []topology.Underlay{
			{Addr: netip.MustParsePrefix("198.18.0.1/22"), Dev: "uplink0", MTU: 1500},
			{Addr: netip.MustParsePrefix("2001:db8::1/64"), Dev: "uplink0", MTU: 1500},
		},
		Backend: topology.Auto, VNI: 42, Port: 8472, Checksum: true,
	}
}

func node(gateway string) Node {
	return Node{
		Sysctls: map[topology.SysctlKey]topology.Wanted[topology.Sysctl]{
			"net/ipv4/ip_forward": {Value: "1", Origin: "Node self"},
		},
		Routes: map[topology.RouteKey]topology.Wanted[topology.Route]{
			{Dst: netip.MustParsePrefix(gateway), Local: true}: {Origin: "Node self"},
		},
		NAT: map[topology.NATKey]topology.Wanted[topology.NAT]{
			"weft": {Value: topology.NAT{Sources: gateway, Direct: "10.42.0.0/16"}, Origin: "IPPool default"},
		},
	}
}

// peer is a node; of the first thousand, every second one is on this node's
// segment.
func peer(i int) string { return fmt.Sprintf("node%d", i) }

func lease(i int, v6 bool) cluster.Lease {
	l := cluster.Lease{
		Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64 + byte(i>>8), byte(i), 0}), 24),
		UID:    fmt.Sprintf("uid-%d-%v", i, v6), Created: int64(i + 1), Pool: "default", Node: peer(i),
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{198, 18 + byte(i%2), byte(i >> 8), byte(i)}).Next().Next(),
			netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 5: byte(i % 2), 13: 1, 14: byte(i >> 8), 15: byte(i)}),
		},
		VTEP: cluster.VTEP{MAC: cluster.VTEPMAC(peer(i)), VNI: 42, Port: 8472},
	}
	if v6 {
		l.Subnet = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x42, 6: byte(i >> 8), 7: byte(i)}), 64)
	}
	return l
}

// join is what happens when a dual-stack node joins the cluster.
func join(i int) []registry.Change {
	return []registry.Change{known(i), holds(lease(i, false)), holds(lease(i, true))}
}

func known(i int) registry.Change {
	return registry.Change{Key: registry.Key{Kind: registry.Node, Name: peer(i)}, Object: cluster.Node{Name: peer(i)}}
}

func holds(l cluster.Lease) registry.Change {
	return registry.Change{Key: registry.Key{Kind: registry.SubnetLease, Name: l.Name()}, Object: l}
}

// gone is the change that removes an object.
func gone(c registry.Change) registry.Change { return registry.Change{Key: c.Key} }

func sorted[K delta.Key[K], V any](m map[K]V) []K { return slices.SortedFunc(maps.Keys(m), K.Compare) }
