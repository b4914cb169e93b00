// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/reconcile"
)

// leftovers is what an earlier process left in the kernel.
func (w *world) leftovers() {
	k := w.kernel
	k.links.have["weft-vxlan"] = topology.Link{VNI: 7}
	k.addresses.have[topology.AddressKey{Dev: "weft-vxlan", Addr: netip.MustParseAddr("10.42.9.1")}] = topology.Address{}
	k.neighbours.have[topology.NeighbourKey{Dev: "weft-vxlan", Addr: netip.MustParseAddr("10.42.8.1")}] = topology.Neighbour{}
	k.fdb.have[topology.FDBKey{Dev: "weft-vxlan"}] = topology.FDB{}
	k.routes.have[mainRoute] = topology.Route{Gateway: netip.MustParseAddr("198.18.0.9"), Dev: "uplink0"}
	k.routes.have[localRoute] = topology.Route{}
	k.nat.have["weft"] = topology.NAT{Sources: "10.42.9.0/24"}
}

var (
	mainRoute  = topology.RouteKey{Dst: netip.MustParsePrefix("10.42.8.0/24")}
	localRoute = topology.RouteKey{Dst: netip.MustParsePrefix("10.42.9.1/32"), Local: true}
)

func TestNothingOfTheClusterBeforeItIsKnown(t *testing.T) {
	steps := map[string]func(*world){
		"synced": func(w *world) { w.store.Synced(w.now) },
		"self":   func(w *world) { w.SetSelf(w.self) },
		"node":   func(w *world) { w.SetNode(w.node) },
	}
	for _, order := range [][]string{
		{"synced", "self", "node"}, {"synced", "node", "self"}, {"self", "synced", "node"},
		{"self", "node", "synced"}, {"node", "self", "synced"}, {"node", "synced", "self"},
	} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			w := newWorld()
			w.leftovers()
			for i := range 4 {
				w.store.Apply(join(i)...)
			}
			done := map[string]bool{}
			for _, step := range order {
				w.Noticed(Routes, mainRoute, nil, true)
				w.Resync("")
				w.run(time.Hour)
				w.checkStage(t, done)
				steps[step](w)
				done[step] = true
			}
			w.run(time.Second)
			w.same(t)
		})
	}
}

func (w *world) checkStage(t *testing.T, done map[string]bool) {
	t.Helper()
	k := w.kernel
	cluster := done["synced"] && done["self"]
	if use := k.clusterUse(); !cluster && use > 0 {
		t.Fatalf("after %v: %d reads and operations of the cluster's kinds", done, use)
	}
	if _, there := k.routes.have[mainRoute]; there == cluster {
		t.Errorf("after %v: the old route to a peer is there: %v", done, there)
	}
	if _, there := k.routes.have[localRoute]; there == done["node"] {
		t.Errorf("after %v: the old local route is there: %v", done, there)
	}
	if old := k.nat.have["weft"].Sources == "10.42.9.0/24"; old == done["node"] {
		t.Errorf("after %v: the old masquerading is there: %v", done, old)
	}
	if !done["node"] && k.sysctls.reads+k.nat.reads+k.sysctls.ops+k.nat.ops > 0 {
		t.Errorf("after %v: the node's own kinds were used", done)
	}
}

func TestWithoutCluster(t *testing.T) {
	w := newWorld()
	w.store, w.Fabric = nil, New(nil, w.kernel.drivers())
	w.leftovers()
	w.SetSelf(w.self)
	w.run(time.Hour)
	if len(w.kernel.routes.have) != 2 || len(w.kernel.links.have) != 1 {
		t.Error("written before SetNode")
	}
	w.SetNode(w.node)
	w.run(time.Second)
	w.same(t)
	if len(w.Reach()) > 0 || len(w.Rejected()) > 0 {
		t.Error("there are leases")
	}
}

func TestLosingContactChangesNothing(t *testing.T) {
	w := running(t, 6)
	w.store.Unreachable(errors.New("no route to host"), w.now)
	ops := w.kernel.routes.ops
	w.run(time.Hour)
	w.same(t)
	if w.kernel.routes.ops != ops {
		t.Error("routes were written")
	}
	w.kernel.lose(w.Fabric, topology.VXLANDevice4) // and what vanishes is mended
	w.run(time.Second)
	w.same(t)
}

func TestSelfChanges(t *testing.T) {
	w := running(t, 6)
	for name, change := range map[string]func(*topology.Self){
		"address":  func(s *topology.Self) { s.Underlay[0].Addr = netip.MustParsePrefix("198.18.3.200/22") },
		"device":   func(s *topology.Self) { s.Underlay[0].Dev, s.Underlay[1].Dev = "uplink1", "uplink1" },
		"mtu":      func(s *topology.Self) { s.MTU = 1400 },
		"vxlan":    func(s *topology.Self) { s.Backend = topology.VXLAN },
		"native":   func(s *topology.Self) { s.Backend = topology.Native },
		"ipv4":     func(s *topology.Self) { s.Underlay = s.Underlay[:1] },
		"ipv6":     func(s *topology.Self) { s.Underlay = s.Underlay[1:] },
		"checksum": func(s *topology.Self) { s.Checksum = false },
	} {
		w.self = self()
		change(&w.self)
		w.SetSelf(w.self)
		w.run(5 * time.Second)
		if diff := w.differs(); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestNodeChanges(t *testing.T) {
	w := running(t, 2)
	w.node = node("10.42.7.1/32")
	delete(w.node.Sysctls, "net/ipv4/ip_forward")
	w.SetNode(w.node)
	w.run(time.Second)
	w.same(t)

	ops := w.kernel.routes.ops + w.kernel.nat.ops + w.kernel.sysctls.ops
	w.SetNode(w.node)
	w.run(time.Second)
	if w.kernel.routes.ops+w.kernel.nat.ops+w.kernel.sysctls.ops != ops {
		t.Error("the same again is written again")
	}

	w.kernel.nat.mode = always
	w.node = node("10.42.8.1/32")
	ops = w.kernel.nat.ops
	for range 100 {
		w.SetNode(w.node)
		w.Step(w.now)
	}
	if n := w.kernel.nat.ops - ops; n != 1 {
		t.Errorf("what fails is tried %d times when it is only said again", n)
	}
}

// A peer that changes address costs as many operations as follow from it.
func TestOneChangeIsFewOperations(t *testing.T) {
	w := running(t, 20)
	k := w.kernel
	links, reads, ops := k.links.ops, k.routes.reads, k.routes.ops
	l := lease(3, false)
	l.Addresses[0] = netip.MustParseAddr("198.18.0.77") // now on this node's segment
	w.store.Apply(holds(l))
	w.Step(w.now)
	w.same(t)
	if k.routes.ops-ops != 1 || k.routes.reads != reads || k.links.ops != links {
		t.Errorf("%d operations on routes, %d reads, %d operations on links",
			k.routes.ops-ops, k.routes.reads-reads, k.links.ops-links)
	}
}

func TestLostDeviceIsReplayed(t *testing.T) {
	w := running(t, 20)
	w.kernel.lose(w.Fabric, topology.VXLANDevice4)
	w.run(200 * time.Millisecond)
	w.same(t)
}

// The uplink went down for a moment and took IPv4 routes with it: the kernel
// does not say so of routes.
func TestUnderlayNoticeReadsRoutes(t *testing.T) {
	w := running(t, 20)
	w.kernel.mu.Lock()
	maps.DeleteFunc(w.kernel.routes.have, func(k topology.RouteKey, r topology.Route) bool { return r.Dev == "uplink0" && k.Dst.Addr().Is4() })
	w.kernel.mu.Unlock()
	if w.differs() == "" {
		t.Fatal("no route was by way of the uplink")
	}
	links := w.kernel.links.reads
	w.Noticed(Underlay, "uplink0", nil, false)
	w.run(200 * time.Millisecond)
	w.same(t)
	if w.kernel.links.reads != links {
		t.Error("devices were read too")
	}
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	w := running(t, 2)
	l := lease(5, false)
	key := topology.RouteKey{Dst: l.Subnet}
	w.kernel.routes.foreign[key] = true
	w.store.Apply(known(5), holds(l))
	w.run(time.Minute)
	if _, there := w.kernel.routes.have[key]; there {
		t.Error("the foreign route was overwritten")
	}
	i := slices.IndexFunc(w.Status(), func(s reconcile.Status) bool { return s.Kind == Routes })
	s := w.Status()[i]
	if len(s.Failing) != 1 || s.Failing[0].Object != "route "+l.Subnet.String() || s.Failing[0].Err.Error() != "something foreign is in the way" {
		t.Errorf("failing: %+v", s.Failing)
	}
	objects := w.Objects(Routes)
	i = slices.IndexFunc(objects, func(o reconcile.Object) bool { return o.Key == key })
	if o := objects[i]; o.State != reconcile.Failed || o.Origin == "" {
		t.Errorf("object: %+v", o)
	}
	delete(w.kernel.routes.foreign, key)
	w.run(time.Minute)
	w.same(t)
}
