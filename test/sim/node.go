// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/leasing"
	"weft.dev/weft/internal/registry"
)

const (
	// idleAfter is how long an extra block is kept without pods.
	idleAfter = 30 * time.Second
	// stepPause is the least time between two steps of a Keeper, as in the agent.
	stepPause = 50 * time.Millisecond
)

var errContact = errors.New("the registry is out of reach")

// node is a machine and the agent's process on it. What the process has in
// memory begins with life.
type node struct {
	w        *World
	name     string
	object   cluster.Node
	self     topology.Self
	kernel   *kernel
	ipam     *addresses
	removed  bool
	uses     []netip.Prefix        // its entries in World.used
	stranded map[netip.Prefix]bool // blocks whose lease an outsider took away, and the node may not know it

	life    int // counts processes
	up      bool
	dying   bool // the process ends within the present event
	contact bool
	store   *registry.Store
	feed    feed
	pools   []cluster.Pool // accepted ones, as the process knows them
	keeper  *leasing.Keeper
	fabric  *fabric.Fabric
	stepped time.Time // the Keeper, last
	keep    timer
	weave   timer
}

// join brings a new machine.
func (w *World) join() {
	i := len(w.nodes)
	n := &node{w: w, name: fmt.Sprintf("node%03d", i), stranded: map[netip.Prefix]bool{}}
	n.kernel = newKernel(n)
	n.ipam = newAddresses(n)
	w.nodes, w.live = append(w.nodes, n), append(w.live, n)
	n.settle()
	n.self.Backend = w.backend
	n.object = cluster.Node{
		Name: n.name, UID: w.uid(), Addresses: n.addresses(), Labels: map[string]string{"zone": string("abc"[i%3])},
	}
	if i%16 == 7 {
		n.object.PodCIDRs = []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 2), byte(i << 6)}), 26),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x99, 14: byte(i >> 2), 15: byte(i << 6)}), 122),
		}
	}
	n.kernel.leftovers()
	n.start()
	if w.options.AtOnce {
		n.register()
		return
	}
	w.after(w.between(0, 2*time.Second), "kubelet of "+n.name, n.register)
}

// register makes the Node object what the machine is.
func (n *node) register() {
	if !n.removed {
		n.w.put(nodeKey(n.name), n.object)
	}
}

func (w *World) uid() string {
	w.uids++
	return "uid-" + strconv.Itoa(w.uids)
}

// Segments of the underlay, and how many of its families a machine has.
const segments = 5

// settle gives the machine a place in the underlay. Addresses of removed
// machines are used again.
func (n *node) settle() {
	w := n.w
	for _, u := range n.self.Underlay {
		delete(w.taken, u.Addr.Addr())
	}
	n.self = topology.Self{Node: n.name, VNI: 42, Port: 8472, Backend: n.self.Backend, Checksum: true}
	segment, families := byte(w.rng.IntN(segments)), w.rng.IntN(8)
	for i := 1; ; i++ {
		v4 := netip.AddrFrom4([4]byte{198, 18 + byte(i>>8), segment, byte(i)})
		v6 := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: segment, 14: byte(i >> 8), 15: byte(i)})
		if byte(i) == 0 || byte(i) == 255 || w.taken[v4] || w.taken[v6] {
			continue
		}
		if families != 0 {
			n.self.Underlay = append(n.self.Underlay, topology.Underlay{Addr: netip.PrefixFrom(v4, 24), Dev: "uplink0", MTU: 1500})
		}
		if families != 1 {
			n.self.Underlay = append(n.self.Underlay, topology.Underlay{Addr: netip.PrefixFrom(v6, 64), Dev: "uplink0", MTU: 1500})
		}
		break
	}
	for _, u := range n.self.Underlay {
		w.taken[u.Addr.Addr()] = true
	}
}

func (n *node) addresses() []netip.Addr {
	var addrs []netip.Addr
	for _, u := range n.self.Underlay {
		addrs = append(addrs, u.Addr.Addr())
	}
	return addrs
}

// identity is what the keeper is told, as in the agent.
func (n *node) identity() leasing.Identity {
	id := leasing.Identity{Addresses: n.addresses(), VTEP: n.vtep()}
	for _, u := range n.self.Underlay {
		id.Networks = append(id.Networks, lease.Network{Prefix: u.Addr.Masked(), Dev: u.Dev})
	}
	return id
}

// vtep is what the node's leases say, as in the agent.
func (n *node) vtep() cluster.VTEP {
	if n.self.Backend == topology.Native {
		return cluster.VTEP{}
	}
	return cluster.VTEP{MAC: cluster.VTEPMAC(n.name), VNI: n.self.VNI, Port: n.self.Port}
}

// start begins a process, with what the machine has kept.
func (n *node) start() {
	if n.up || n.removed {
		return
	}
	n.life++
	n.up, n.dying, n.contact = true, false, true
	n.stepped = time.Time{}
	n.keep, n.weave = timer{what: "keeps leases"}, timer{what: "weaves"}
	n.store, n.pools = registry.NewStore(), nil
	n.ipam.restart()
	n.fabric = fabric.New(n.store, n.kernel.drivers())
	n.keeper = leasing.New(leasing.Config{Node: n.name, IdleAfter: idleAfter, Previous: n.ipam.pool.Subnets()},
		n.store, n.leases(), n.ipam,
		n.identity,
		n.fabric.Rejected)
	n.fabric.SetSelf(n.self)
	n.setNode()
	n.connect()
	n.wake()
}

// crash ends the process; another one starts after a while.
func (n *node) crash(d time.Duration) {
	if !n.up {
		return
	}
	n.life++
	n.up = false
	n.w.result.Crashes++
	n.w.after(d, n.name+" starts again", n.start)
}

// endure ends the event: what died in it is gone.
func (n *node) endure() {
	if n.dying {
		n.crash(n.w.between(0, 30*time.Second))
	}
}

// wake calls for a step of everything.
func (n *node) wake() {
	if !n.up {
		return
	}
	w := n.w
	n.set(&n.weave, w.now.Add(w.between(0, 3*time.Millisecond)), n.weaveNow)
	soon := w.now.Add(w.between(0, 3*time.Millisecond))
	if earliest := n.stepped.Add(stepPause); soon.Before(earliest) {
		soon = earliest
	}
	n.set(&n.keep, soon, n.keepNow)
}

func (n *node) keepNow() {
	n.stepped = n.w.now
	n.set(&n.keep, n.keeper.Step(context.Background(), n.w.now), n.keepNow)
	n.endure()
}

func (n *node) weaveNow() {
	if next := n.fabric.Step(n.w.now); !next.IsZero() {
		n.set(&n.weave, next, n.weaveNow)
	}
	n.endure()
}

// learnPools takes in pools as the agent does.
func (n *node) learnPools() {
	n.store.View(func(s *registry.State) {
		n.pools, _ = cluster.AcceptPools(slices.Collect(maps.Values(s.Pools)), maps.Values(s.Leases))
	})
}

// wantsOf returns the ranges out of which the node should have blocks.
func (n *node) wantsOf(pools []cluster.Pool) (ranges []netip.Prefix) {
	if len(n.object.PodCIDRs) > 0 {
		return n.object.PodCIDRs
	}
	for _, p := range pools {
		if p.Selector.Matches(n.object.Labels) {
			for _, r := range p.Ranges {
				ranges = append(ranges, r.CIDR)
			}
		}
	}
	return ranges
}

// nodeObjects is what the node's own pods need, as in the agent.
func (n *node) nodeObjects() fabric.Node {
	const origin = "AgentConfiguration"
	objects := fabric.Node{
		Sysctls: map[topology.SysctlKey]topology.Wanted[topology.Sysctl]{
			"net/ipv4/ip_forward": {Value: "1", Origin: origin},
		},
		Routes: map[topology.RouteKey]topology.Wanted[topology.Route]{},
		NAT:    map[topology.NATKey]topology.Wanted[topology.NAT]{},
	}
	blocks := n.ipam.blocks()
	for _, subnet := range blocks {
		gateway := subnet.Addr().Next()
		objects.Routes[topology.RouteKey{Dst: netip.PrefixFrom(gateway, gateway.BitLen()), Local: true}] =
			topology.Wanted[topology.Route]{Origin: origin}
	}
	if len(blocks) > 0 {
		objects.NAT["weft"] = topology.Wanted[topology.NAT]{Value: topology.NAT{Sources: fmt.Sprint(blocks)}, Origin: origin}
	}
	return objects
}

func (n *node) setNode() {
	n.fabric.SetNode(n.nodeObjects())
	if n.up {
		n.set(&n.weave, n.w.now, n.weaveNow)
	}
}

// move changes the machine's address, and with it everything that is known of it.
func (n *node) move() {
	n.settle()
	n.w.trace.add(n.w.now, "  %s is at %v now", n.name, n.addresses())
	n.kernel.uplinkChanged()
	n.object.Addresses = n.addresses()
	n.w.after(n.w.between(0, 5*time.Second), "kubelet of "+n.name, n.register)
	n.placed()
}

// placed tells the process its place.
func (n *node) placed() {
	if n.up {
		n.fabric.SetSelf(n.self)
		n.fabric.Noticed(fabric.Underlay, nil, nil, false)
		n.wake()
	}
}

// remove takes the machine away for good. Its objects go later.
func (n *node) remove() {
	w := n.w
	n.removed, n.up = true, false
	n.life++
	w.result.Removed++
	w.live = slices.DeleteFunc(w.live, func(o *node) bool { return o == n })
	for _, u := range n.self.Underlay {
		delete(w.taken, u.Addr.Addr())
	}
	for _, block := range n.uses {
		n.yield(block)
	}
	for len(n.ipam.pods) > 0 {
		n.ipam.stop(0)
	}
	w.after(w.between(0, 20*time.Second), "somebody deletes "+n.name, func() {
		w.remove(nodeKey(n.name))
		w.collect(n.name)
	})
}

// collect deletes the leases of a node that is gone, as Kubernetes' garbage
// collection does: one by one, and not at once.
func (w *World) collect(name string) {
	for _, l := range w.registry.Leases() {
		if l.Node == name {
			w.after(w.between(0, 10*time.Second), "garbage collection", func() { w.takeAway(l) })
		}
	}
}

// takeAway deletes a lease by an outsider's hand, if it is still that one, and of
// that node.
func (w *World) takeAway(l cluster.Lease) {
	if now, there := w.registry.Lease(l.Name()); !there || now.UID != l.UID || now.Node != l.Node {
		return
	}
	w.strand(l)
	w.remove(leaseKey(l.Subnet))
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
