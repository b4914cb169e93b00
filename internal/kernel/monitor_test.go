// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/kernel"
)

// monitored runs a monitor and returns what collects notices.
func monitored(w *world) *notices {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &notices{TB: w, w: w, all: make(chan kernel.Notice, 100_000)}
	done := make(chan error, 1)
	go func() { done <- w.h.Monitor(ctx, func(notice kernel.Notice) { n.all <- notice }) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Errorf("the monitor ended with %v", err)
		}
	})
	if first := n.next(); first.Kind != "" {
		w.Fatalf("first notice %+v", first)
	}
	return n
}

type notices struct {
	testing.TB
	w      *world
	all    chan kernel.Notice
	fences int
}

func (n *notices) next() kernel.Notice {
	n.Helper()
	select {
	case notice := <-n.all:
		return notice
	case <-time.After(patience):
		n.Fatal("no notice")
		return kernel.Notice{}
	}
}

// since returns the notices of everything that has happened, in order. They
// end with those of a fence: a neighbour entry that nobody else has.
func (n *notices) since() (list []kernel.Notice) {
	n.Helper()
	n.fences++
	k := topology.NeighbourKey{Dev: topology.VXLANDevice4, Addr: netip.AddrFrom4([4]byte{203, 0, 113, byte(n.fences)})}
	apply(n.TB, n.w.h.FabricNeighbours(), delta.Add, k, topology.Neighbour{MAC: mac1})
	for {
		notice := n.next()
		if notice.Key == k {
			return list
		}
		list = append(list, notice)
	}
}

// TestMonitorSaysWhatDriversObserve: after anything that a driver does, what
// the monitor said last of an object is what the driver observes.
func TestMonitorSaysWhatDriversObserve(t *testing.T) {
	w := newWorld(t)
	w.outside()
	w.devices(topology.VXLANDevice4)
	n := monitored(w)
	w.devices(topology.VXLANDevice6)
	changed := device(topology.VXLANDevice6)
	changed.Checksum, changed.MTU = false, 1400
	apply(t, w.h.VXLANLinks(instance), delta.Change, topology.VXLANDevice6, changed)
	const dev = topology.VXLANDevice4
	peer4, peer6 := netip.MustParseAddr("10.42.5.1"), netip.MustParseAddr("fd00:42:5::1")
	addresses, neighbours, fdb, routes := w.h.FabricAddresses(), w.h.FabricNeighbours(), w.h.FDB(), w.h.FabricRoutes()
	for i, a := range []netip.Addr{peer4, peer6} {
		subnet := netip.MustParsePrefix([]string{"10.42.5.0/24", "fd00:42:5::/64"}[i])
		own := netip.MustParseAddr([]string{"10.42.3.1", "fd00:42:3::1"}[i])
		far := netip.MustParsePrefix([]string{"10.42.6.0/24", "fd00:42:6::/64"}[i])
		gone := netip.MustParsePrefix([]string{"10.42.7.0/24", "fd00:42:7::/64"}[i])
		apply(t, addresses, delta.Add, topology.AddressKey{Dev: dev, Addr: own}, topology.Address{})
		w.host.Do(func() { awaitLocal(t, own) }) // IPv6 reports an address when it puts it to use
		apply(t, neighbours, delta.Add, topology.NeighbourKey{Dev: dev, Addr: a}, topology.Neighbour{MAC: mac2})
		apply(t, fdb, delta.Add, topology.FDBKey{Dev: dev, MAC: attach.MAC{2, byte(i)}}, topology.FDB{Dst: netip.MustParseAddr("198.18.2.12")})
		apply(t, routes, delta.Add, topology.RouteKey{Dst: subnet}, topology.Route{Gateway: a, Dev: dev})
		apply(t, routes, delta.Add, topology.RouteKey{Dst: far}, topology.Route{Gateway: netip.MustParseAddr("2001:db8:1::2"), Dev: "uplink"})
		apply(t, routes, delta.Change, topology.RouteKey{Dst: far}, topology.Route{})
		apply(t, routes, delta.Add, topology.RouteKey{Dst: netip.PrefixFrom(own, own.BitLen()), Local: true}, topology.Route{})
		apply(t, routes, delta.Add, topology.RouteKey{Dst: gone}, topology.Route{})
		apply(t, routes, delta.Delete, topology.RouteKey{Dst: gone}, topology.Route{})
	}
	apply(t, fdb, delta.Change, topology.FDBKey{Dev: dev, MAC: attach.MAC{2, 1}}, topology.FDB{Dst: netip.MustParseAddr("198.18.2.13")})
	apply(t, neighbours, delta.Change, topology.NeighbourKey{Dev: dev, Addr: peer6}, topology.Neighbour{MAC: mac1})

	last := map[any]any{}
	for _, notice := range n.since() {
		if notice.Key == nil {
			t.Errorf("notice %+v: nothing happened that it could mean", notice)
		}
		if last[notice.Key] = notice.Value; notice.Gone {
			delete(last, notice.Key)
		}
	}
	observed := map[any]any{}
	fence := netip.MustParsePrefix("203.0.113.0/24")
	for k, v := range observe(t, w.h.VXLANLinks(instance)) {
		if k == topology.VXLANDevice6 { // the other one was there before
			observed[k] = v
		}
	}
	for k, v := range observe(t, addresses) {
		observed[k] = v
	}
	for k, v := range observe(t, neighbours) {
		if !fence.Contains(k.Addr) {
			observed[k] = v
		}
	}
	for k, v := range observe(t, fdb) {
		observed[k] = v
	}
	for k, v := range observe(t, routes) {
		observed[k] = v
	}
	for k, v := range observed {
		if last[k] != v {
			t.Errorf("%T %v: observed %v, reported %v", k, k, v, last[k])
		}
		delete(last, k)
	}
	for k, v := range last {
		t.Errorf("%T %v: reported %v, and not there", k, k, v)
	}
}

func TestMonitorReportsWhatOthersDo(t *testing.T) {
	w := newWorld(t)
	w.outside()
	w.devices()
	key := topology.RouteKey{Dst: netip.MustParsePrefix("10.42.5.0/24")}
	near := topology.Route{Gateway: netip.MustParseAddr("10.42.5.1"), Dev: topology.VXLANDevice4}
	apply(t, w.h.FabricRoutes(), delta.Add, key, near)
	n := monitored(w)
	for _, c := range []struct {
		command string
		want    []kernel.Notice
	}{
		{"route del 10.42.5.0/24", []kernel.Notice{{Kind: "routes", Key: key, Gone: true}}},
		{"link set weft-vxlan6 down", []kernel.Notice{
			{Kind: "links", Key: topology.LinkKey("weft-vxlan6"), Value: down(device("weft-vxlan6"))}, {Kind: "routes"}}},
		{"link del weft-vxlan6", []kernel.Notice{{Kind: "links", Key: topology.LinkKey("weft-vxlan6"), Gone: true}}},
		{"link set uplink mtu 1400", []kernel.Notice{{Kind: "underlay"}}},
		{"link set uplink down", []kernel.Notice{{Kind: "underlay"}, {Kind: "routes"}}},
		{"link set uplink up", []kernel.Notice{{Kind: "underlay"}}},
		{"addr add 198.51.100.7/24 dev uplink", []kernel.Notice{{Kind: "underlay"}}},
		{"route add default via 198.51.100.2", []kernel.Notice{{Kind: "underlay"}}},
		{"route del default", []kernel.Notice{{Kind: "underlay"}}},
		{"link add second type veth peer name other", nil}, // down, it serves nobody
		{"link set second up", []kernel.Notice{{Kind: "underlay"}}},
		{"link del second", []kernel.Notice{{Kind: "underlay"}, {Kind: "routes"}}},
		{"link set uplink txqueuelen 500", nil},
		{"neigh add 198.51.100.77 dev uplink lladdr 02:00:00:00:00:77", nil},
		{"route add 192.168.0.0/16 via 198.51.100.2", nil},
	} {
		w.ip(strings.Fields(c.command)...)
		got := n.since()
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s: reported %+v, want also %+v", c.command, got, want)
			}
		}
		if len(c.want) == 0 && len(got) > 0 {
			t.Errorf("%s: reported %+v", c.command, got)
		}
	}
}

// down is how a device that is down is observed.
func down(l topology.Link) topology.Link {
	l.MTU = 0
	return l
}

// Of pods that come and go no more is said than that one may have gone.
func TestMonitorIgnoresPods(t *testing.T) {
	w := newWorld(t)
	w.outside()
	w.devices()
	n := monitored(w)
	for range 3 {
		p := w.attached("10.42.3.7", "fd00:42:3::7")
		if err := ping(t, p.NS, nodeAddr4); err != nil {
			t.Fatal(err)
		}
		if err := w.h.SetPodMTU(p.ns, p.plan.Ifname, p.plan.HostIfname, 1400); err != nil {
			t.Fatal(err)
		}
		if err := w.h.Detach(p.plan.HostIfname); err != nil {
			t.Fatal(err)
		}
	}
	got := slices.DeleteFunc(n.since(), func(notice kernel.Notice) bool { return notice == kernel.Notice{Kind: "pods"} })
	if len(got) > 0 {
		t.Errorf("reported %+v", got)
	}
}

// A reader that is too slow learns that it has missed something.
func TestMonitorOverrun(t *testing.T) {
	w := newWorld(t)
	w.devices(topology.VXLANDevice4)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	held, proceed := make(chan struct{}), make(chan struct{})
	kinds := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		first := true
		done <- w.h.Monitor(ctx, func(n kernel.Notice) {
			if first {
				first = false
				close(held)
				<-proceed
			} else if n.Kind == "" {
				kinds <- n.Kind
			}
		})
	}()
	<-held
	var add, del []delta.Op[topology.NeighbourKey, topology.Neighbour]
	for i := range 4000 {
		k := topology.NeighbourKey{Dev: topology.VXLANDevice4, Addr: netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)})}
		add = append(add, delta.Op[topology.NeighbourKey, topology.Neighbour]{Verb: delta.Add, Key: k, Want: topology.Neighbour{MAC: mac2}})
		del = append(del, delta.Op[topology.NeighbourKey, topology.Neighbour]{Verb: delta.Delete, Key: k})
	}
	for range 5 { // some 40,000 messages of about 0.75 KiB
		if err := errors.Join(append(w.h.FabricNeighbours().Apply(add), w.h.FabricNeighbours().Apply(del)...)...); err != nil {
			t.Fatal(err)
		}
	}
	close(proceed)
	select {
	case <-kinds:
	case <-time.After(patience):
		t.Error("the overrun was not reported")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the monitor ended with %v", err)
	}
}

func TestMonitorLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(context.Background())
	err := w.h.Monitor(ctx, func(kernel.Notice) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the monitor ended with %v", err)
	}
	goleak.VerifyNone(t, before)
}
