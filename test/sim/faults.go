// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/topology"
)

// faults are what goes wrong, or is done, now and then.
var faults = []struct {
	what   string
	weight int
	do     func(*World, *node)
}{
	{"crash", 10, func(w *World, n *node) { n.crash(w.between(0, time.Minute)) }},
	{"lost contact", 8, func(w *World, n *node) { n.lose(w.between(time.Second, 150*time.Second)) }},
	{"machine removed", 2, (*World).removed},
	{"move", 4, func(_ *World, n *node) { n.move() }},
	{"kernel fails", 10, func(_ *World, n *node) { n.kernel.breakKind() }},
	{"tampering", 14, func(_ *World, n *node) { n.kernel.tamper() }},
	{"intruder", 4, func(_ *World, n *node) { n.kernel.intrude() }},
	{"pools", 2, (*World).changePools},
	{"garbage", 3, (*World).litter},
	{"garbage goes", 2, (*World).tidy},
	{"a pod wanders", 6, (*World).wander},
	{"node object lost", 1, (*World).forget},
	{"backend", 1, func(w *World, n *node) {
		n.self.Backend = pick(w, topology.Auto, topology.VXLAN, topology.Native)
		n.placed()
	}},
}

// fault has one thing go wrong, and the next one later.
func (w *World) fault() {
	if !w.faulty {
		return
	}
	w.after(w.between(0, time.Second), "fault", w.fault)
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	r := w.rng.IntN(sum)
	for _, f := range faults {
		if r -= f.weight; r < 0 {
			n := pick(w, w.live...)
			w.trace.add(w.now, "  %s: %s", f.what, n.name)
			f.do(w, n)
			w.check(n)
			return
		}
	}
}

// removed takes the machine away, and brings a new one.
func (w *World) removed(n *node) {
	n.remove()
	w.after(w.between(0, 30*time.Second), "join", w.join)
}

// forget is a person's mistake: the Node object of a machine that lives is
// deleted, its leases are collected, and the kubelet makes it anew.
func (w *World) forget(n *node) {
	w.remove(nodeKey(n.name))
	w.collect(n.name)
	n.object.UID = w.uid()
	w.after(w.between(time.Second, 30*time.Second), "kubelet of "+n.name, n.register)
}

// firstPool is what there is from the start.
func (w *World) firstPool() cluster.Pool {
	bits := 16 // 1024 blocks
	if w.options.Tight {
		bits = 26
		for blocks := 1; blocks < w.options.Nodes*5/4; blocks *= 2 {
			bits--
		}
	}
	return cluster.Pool{Name: "default", Created: 1, Masquerade: true, Ranges: []cluster.PoolRange{
		{CIDR: netip.PrefixFrom(netip.MustParseAddr("10.64.0.0"), bits), BlockBits: 26},
		{CIDR: netip.PrefixFrom(netip.MustParseAddr("fd00:64::"), bits+96), BlockBits: 122},
	}}
}

func secondPool() cluster.Pool {
	return cluster.Pool{Name: "more", Created: 2,
		Selector: cluster.Selector{{Key: "zone", Operator: cluster.In, Values: []string{"a", "b"}}},
		Ranges: []cluster.PoolRange{
			{CIDR: netip.MustParsePrefix("10.96.0.0/17"), BlockBits: 25},
			{CIDR: netip.MustParsePrefix("fd00:96::/112"), BlockBits: 121},
		}}
}

// changePools has the second pool come or go, or the first reserve something
// else.
func (w *World) changePools(*node) {
	if pick(w, true, false) {
		if w.current(poolKey("more")) == nil {
			w.put(poolKey("more"), secondPool())
		} else {
			w.remove(poolKey("more"))
		}
		return
	}
	p := w.firstPool()
	for range w.rng.IntN(4) {
		r := pick(w, p.Ranges...)
		// From a few addresses to four blocks.
		p.Reserved = append(p.Reserved, w.within(r.CIDR, r.BlockBits-2+w.rng.IntN(5)))
	}
	slices.SortFunc(p.Reserved, netip.Prefix.Compare)
	p.Reserved = slices.CompactFunc(p.Reserved, func(a, b netip.Prefix) bool { return a.Overlaps(b) })
	w.put(poolKey(p.Name), p)
}

// within draws a prefix of some length out of another.
func (w *World) within(p netip.Prefix, bits int) netip.Prefix {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < bits; i++ {
		if w.rng.IntN(2) == 0 {
			b[i/8] |= 0x80 >> (i % 8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, bits)
}

// litter has an outsider write a lease: of nobody, or of a node that never
// asked for it, of any size.
func (w *World) litter(n *node) {
	r := pick(w, w.firstPool().Ranges...)
	l := cluster.Lease{Subnet: w.within(r.CIDR, r.BlockBits-1+w.rng.IntN(3)), Node: "nobody", Pool: "default"}
	if pick(w, true, false) {
		l.Node, l.Addresses, l.VTEP = n.name, n.addresses(), n.vtep()
		if w.rng.IntN(4) == 0 {
			l.VTEP.MAC = cluster.VTEPMAC("nobody")
		}
	}
	if _, there := w.registry.Lease(l.Name()); there {
		return
	}
	w.garbage[l.Name()] = true
	w.put(leaseKey(l.Subnet), l)
}

// tidy takes some garbage away.
func (w *World) tidy(*node) {
	if len(w.garbage) == 0 {
		return
	}
	name := pick(w, sortedKeys(w.garbage)...)
	if l, there := w.registry.Lease(name); there {
		w.takeAway(l)
	}
}

// churn has pods come and go.
func (w *World) churn() {
	if !w.faulty {
		return
	}
	w.after(w.between(0, 100*time.Millisecond), "pods", w.churn)
	if len(w.live) == 0 {
		return
	}
	n := pick(w, w.live...)
	most := 12
	if w.rng.IntN(8) == 0 {
		most = 150
	}
	want, is := w.rng.IntN(most), len(n.ipam.pods)
	for range min(want-is, 40) {
		if !n.ipam.start() {
			break
		}
	}
	for range min(is-want, 40) {
		n.ipam.stop(w.rng.IntN(len(n.ipam.pods)))
	}
	if len(n.ipam.pods) != is {
		w.trace.add(w.now, "  %s: from %d to %d pods", n.name, is, len(n.ipam.pods))
		n.wake()
	}
	w.check(n)
}

// heal ends everything that goes wrong.
func (w *World) heal() {
	w.faulty = false
	w.trace.add(w.now, "  the faults end")
	for _, name := range sortedKeys(w.garbage) {
		if l, there := w.registry.Lease(name); there {
			w.takeAway(l)
		}
	}
	for _, n := range w.live {
		n.kernel.heal()
		n.self.Backend = w.backend
		n.register()
		n.start()
		if !n.contact {
			n.regain()
		}
		n.placed()
	}
	w.after(25*time.Second, "the pods that lost their lease start elsewhere", w.settleWanderers)
	// By then the last lease is taken away that an outsider's mistake costs.
	w.after(15*time.Second, "the pods that lost their block are restarted", w.relieve)
}

// relieve stops pods where they have no right to their address any more, as
// people do, and where there are many.
func (w *World) relieve() {
	for _, n := range w.live {
		for len(n.ipam.pods) > 0 && (len(n.stranded) > 0 || len(n.ipam.pods) > 40) {
			n.ipam.stop(len(n.ipam.pods) - 1)
		}
		n.wake()
	}
}

// strand notes that a lease is taken away from who uses its block, or may do so
// until it hears of it.
func (w *World) strand(l cluster.Lease) {
	if l.Pod != "" {
		return // it is nobody's block
	}
	for _, n := range w.live {
		if n.name != l.Node && !slices.Contains(n.ipam.blocks(), l.Subnet) {
			continue
		}
		n.stranded[l.Subnet] = true
		n.yield(l.Subnet)
		for addr, pod := range n.ipam.usage.Used {
			if l.Subnet.Contains(addr) && w.pods[addr] == pod {
				delete(w.pods, addr)
			}
		}
	}
}
