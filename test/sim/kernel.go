// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/fabric"
)

// kernel is what a machine's kernel holds. It outlives the process. What is on
// a device vanishes with it, and nothing can be put on one that is not there.
type kernel struct {
	node       *node
	sysctls    *objects[topology.SysctlKey, topology.Sysctl]
	links      *objects[topology.LinkKey, topology.Link]
	addresses  *objects[topology.AddressKey, topology.Address]
	neighbours *objects[topology.NeighbourKey, topology.Neighbour]
	fdb        *objects[topology.FDBKey, topology.FDB]
	routes     *objects[topology.RouteKey, topology.Route]
	nat        *objects[topology.NATKey, topology.NAT]
}

// objects are those of one kind; it is their driver.
type objects[K delta.Key[K], V comparable] struct {
	kernel  *kernel
	kind    string
	have    map[K]V
	ever    map[K]bool // what was ours at any time
	foreign map[K]bool // keys that a stranger has
	mode    mode
	blind   bool // it cannot be read

	own     func(K) bool         // the node's, which needs no view of the cluster
	on      func(K, V) string    // the device that it is on
	changed func(delta.Op[K, V]) // after an operation
}

// mode is how operations fare.
type mode string

const (
	works    mode = "works"
	once     mode = "fails once"
	always   mode = "fails"
	happened mode = "fails once after having happened"
)

var errKernel = errors.New("the kernel says no")

func newObjects[K delta.Key[K], V comparable](k *kernel, kind string) *objects[K, V] {
	return &objects[K, V]{
		kernel: k, kind: kind, have: map[K]V{}, ever: map[K]bool{}, foreign: map[K]bool{}, mode: works,
		own: func(K) bool { return false }, on: func(K, V) string { return "" }, changed: func(delta.Op[K, V]) {},
	}
}

func newKernel(n *node) *kernel {
	k := &kernel{node: n}
	k.sysctls = newObjects[topology.SysctlKey, topology.Sysctl](k, fabric.Sysctls)
	k.links = newObjects[topology.LinkKey, topology.Link](k, fabric.Links)
	k.addresses = newObjects[topology.AddressKey, topology.Address](k, fabric.Addresses)
	k.neighbours = newObjects[topology.NeighbourKey, topology.Neighbour](k, fabric.Neighbours)
	k.fdb = newObjects[topology.FDBKey, topology.FDB](k, fabric.FDB)
	k.routes = newObjects[topology.RouteKey, topology.Route](k, fabric.Routes)
	k.nat = newObjects[topology.NATKey, topology.NAT](k, fabric.NAT)

	k.sysctls.own = func(topology.SysctlKey) bool { return true }
	k.nat.own = func(topology.NATKey) bool { return true }
	k.routes.own = func(key topology.RouteKey) bool { return key.Local }
	k.addresses.on = func(key topology.AddressKey, _ topology.Address) string { return key.Dev }
	k.neighbours.on = func(key topology.NeighbourKey, _ topology.Neighbour) string { return key.Dev }
	k.fdb.on = func(key topology.FDBKey, _ topology.FDB) string { return key.Dev }
	k.routes.on = func(_ topology.RouteKey, r topology.Route) string { return r.Dev }
	k.links.changed = k.linkChanged
	return k
}

func (k *kernel) drivers() fabric.Drivers {
	return fabric.Drivers{
		Sysctls: k.sysctls, Links: k.links, Addresses: k.addresses, Neighbours: k.neighbours,
		FDB: k.fdb, Routes: k.routes, NAT: k.nat,
	}
}

// linkChanged does what the kernel and its driver do: a device that another VNI,
// port or family is wanted of is made anew, and one that gets another hardware
// address loses its neighbours.
func (k *kernel) linkChanged(op delta.Op[topology.LinkKey, topology.Link]) {
	w, h := op.Want, op.Have
	switch {
	case op.Verb == delta.Delete, op.Verb == delta.Change && (w.VNI != h.VNI || w.Port != h.Port || w.Local.Is4() != h.Local.Is4()):
		k.wipe(string(op.Key))
	case op.Verb == delta.Change && w.MAC != h.MAC:
		k.neighbours.drop(func(key topology.NeighbourKey, _ topology.Neighbour) bool { return key.Dev == string(op.Key) })
	}
}

// wipe takes away what is on a device.
func (k *kernel) wipe(dev string) {
	k.addresses.dropOn(dev)
	k.neighbours.dropOn(dev)
	k.fdb.dropOn(dev)
	k.routes.dropOn(dev)
}

// uplinkChanged is what an address change does to the routes of the interface.
func (k *kernel) uplinkChanged() { k.routes.dropOn("uplink0") }

func (o *objects[K, V]) drop(gone func(K, V) bool) { maps.DeleteFunc(o.have, gone) }

func (o *objects[K, V]) dropOn(dev string) {
	o.drop(func(key K, v V) bool { return o.on(key, v) == dev })
}

// Observe implements reconcile.Driver.
func (o *objects[K, V]) Observe() (map[K]V, error) {
	if o.blind || o.kernel.node.dying {
		return nil, errKernel
	}
	all := maps.Clone(o.have)
	if o.kernel.node.w.options.mutant.nosy {
		for key := range o.foreign {
			all[key] = *new(V)
		}
	}
	return all, nil
}

// Apply implements reconcile.Driver.
func (o *objects[K, V]) Apply(ops []delta.Op[K, V]) []error {
	n, w := o.kernel.node, o.kernel.node.w
	errs := make([]error, len(ops))
	last := len(ops) // that is carried out before the process dies
	if w.chance(2000) {
		last = w.rng.IntN(len(ops))
	}
	failed := 0
	for i, op := range ops {
		if i == last {
			w.trace.add(w.now, "  %s dies among %d operations on %s", n.name, len(ops), o.kind)
			n.dying = true
		}
		errs[i] = errKernel
		if !n.dying {
			errs[i] = o.one(op)
		}
		if errs[i] != nil {
			failed++
		}
	}
	w.trace.add(w.now, "  %s: %d operations on %s from %s %v on, %d fail", n.name, len(ops), o.kind, ops[0].Verb, ops[0].Key, failed)
	return errs
}

func (o *objects[K, V]) one(op delta.Op[K, V]) error {
	was := o.mode
	if was != always {
		o.mode = works
	}
	if was == once || was == always {
		return errKernel
	}
	o.kernel.node.checkOperation(o.kind, fmt.Sprint(op.Verb, " ", op.Key), o.own(op.Key), op.Verb == delta.Delete && !o.ever[op.Key])
	if err := o.carryOut(op); err != nil {
		return err
	}
	if was == happened {
		return errKernel
	}
	return nil
}

func (o *objects[K, V]) carryOut(op delta.Op[K, V]) error {
	dev := o.on(op.Key, op.Want)
	_, there := o.kernel.links.have[topology.LinkKey(dev)]
	switch {
	case op.Verb == delta.Delete:
		if !o.kernel.node.w.options.mutant.careless {
			delete(o.have, op.Key)
		}
	case o.foreign[op.Key]:
		return fmt.Errorf("%v is a stranger's", op.Key)
	case strings.HasPrefix(dev, topology.VXLANDevice4) && !there:
		return fmt.Errorf("there is no device %s", dev)
	default:
		o.put(op.Key, op.Want)
	}
	o.changed(op)
	return nil
}

func (o *objects[K, V]) put(key K, v V) {
	o.have[key] = v
	o.ever[key] = true
}

// spoil takes one object away or changes it, and tells the process perhaps.
func (o *objects[K, V]) spoil(wrong V) {
	n := o.kernel.node
	if len(o.have) == 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(o.have), K.Compare)
	key := keys[n.w.rng.IntN(len(keys))]
	op := delta.Op[K, V]{Verb: delta.Delete, Key: key, Have: o.have[key]}
	if pick(n.w, true, false) {
		op.Verb, op.Want = delta.Change, wrong
		o.have[key] = wrong
	} else {
		delete(o.have, key)
	}
	o.changed(op)
	told := n.up && pick(n.w, true, false)
	n.w.trace.add(n.w.now, "  %s %v of %s: somebody spoils it (%s), told: %v", o.kind, key, n.name, op.Verb, told)
	if told {
		n.fabric.Noticed(o.kind, key, wrong, op.Verb == delta.Delete)
		n.wake()
	}
}

// occupy has a stranger take a key.
func (o *objects[K, V]) occupy(key K) {
	n := o.kernel.node
	n.w.trace.add(n.w.now, "  %s %v of %s: a stranger takes it", o.kind, key, n.name)
	if v, there := o.have[key]; there {
		delete(o.have, key)
		o.changed(delta.Op[K, V]{Verb: delta.Delete, Key: key, Have: v})
	}
	o.foreign[key] = true
}

// heal ends what goes wrong with the kind; strangers go.
func (o *objects[K, V]) heal() {
	o.mode, o.blind = works, false
	clear(o.foreign)
}

// breakKind makes one kind fail for a while.
func (k *kernel) breakKind() {
	w := k.node.w
	m := pick(w, once, once, always, happened)
	blind := w.rng.IntN(5) == 0
	set := func(kind string, mode *mode, blindness *bool) {
		w.trace.add(w.now, "  %s of %s: %s, cannot be read: %v", kind, k.node.name, m, blind)
		*mode, *blindness = m, blind
		w.after(w.between(1e9, 90e9), kind+" of "+k.node.name+" work again", func() { *mode, *blindness = works, false })
	}
	switch w.rng.IntN(7) {
	case 0:
		set(fabric.Sysctls, &k.sysctls.mode, &k.sysctls.blind)
	case 1:
		set(fabric.Links, &k.links.mode, &k.links.blind)
	case 2:
		set(fabric.Addresses, &k.addresses.mode, &k.addresses.blind)
	case 3:
		set(fabric.Neighbours, &k.neighbours.mode, &k.neighbours.blind)
	case 4:
		set(fabric.FDB, &k.fdb.mode, &k.fdb.blind)
	case 5:
		set(fabric.Routes, &k.routes.mode, &k.routes.blind)
	case 6:
		set(fabric.NAT, &k.nat.mode, &k.nat.blind)
	}
}

// tamper does to something of ours what others may do.
func (k *kernel) tamper() {
	switch k.node.w.rng.IntN(6) {
	case 0:
		k.links.spoil(topology.Link{})
	case 1:
		k.addresses.spoil(topology.Address{})
	case 2:
		k.neighbours.spoil(topology.Neighbour{})
	case 3:
		k.fdb.spoil(topology.FDB{})
	case 4:
		k.routes.spoil(topology.Route{Dev: "eth9"})
	case 5:
		k.nat.spoil(topology.NAT{})
	}
}

// intrude puts something of a stranger's where ours is, or may come.
func (k *kernel) intrude() {
	w := k.node.w
	leases := w.registry.Leases()
	if len(leases) == 0 || w.rng.IntN(4) == 0 {
		k.links.occupy(pick(w, topology.LinkKey(topology.VXLANDevice4), topology.LinkKey(topology.VXLANDevice6)))
		return
	}
	k.routes.occupy(topology.RouteKey{Dst: pick(w, leases...).Subnet})
}

func (k *kernel) heal() {
	k.sysctls.heal()
	k.links.heal()
	k.addresses.heal()
	k.neighbours.heal()
	k.fdb.heal()
	k.routes.heal()
	k.nat.heal()
}

// leftovers are what an earlier life of the machine has left, perhaps.
func (k *kernel) leftovers() {
	if k.node.w.rng.IntN(2) == 0 {
		return
	}
	mac, gateway := cluster.VTEPMAC("before"), netip.MustParseAddr("10.250.0.1")
	const dev = topology.VXLANDevice4
	k.links.put(dev, topology.Link{VNI: 7, Port: 4789, Local: netip.MustParseAddr("198.18.9.9"), MAC: mac, MTU: 1450})
	k.addresses.put(topology.AddressKey{Dev: dev, Addr: gateway}, topology.Address{})
	k.neighbours.put(topology.NeighbourKey{Dev: dev, Addr: gateway.Next()}, topology.Neighbour{MAC: mac})
	k.fdb.put(topology.FDBKey{Dev: dev, MAC: mac}, topology.FDB{Dst: netip.MustParseAddr("198.18.9.8")})
	k.routes.put(topology.RouteKey{Dst: netip.MustParsePrefix("10.250.1.0/24")}, topology.Route{Gateway: gateway.Next(), Dev: dev})
	k.routes.put(topology.RouteKey{Dst: netip.MustParsePrefix("10.250.2.0/24")}, topology.Route{})
	k.nat.put("weft", topology.NAT{Sources: "10.250.0.0/24"})
}
