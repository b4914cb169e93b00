// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/kernel"
)

func TestDetachRemovesEverythingAndIsIdempotent(t *testing.T) {
	w := newWorld(t)
	before := hostState(w)
	p := w.attached("10.42.3.7", "fd00:42:3::7")
	for range 2 {
		if err := w.h.Detach(p.plan.HostIfname); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, hostState(w)); diff != "" {
		t.Errorf("host before and after (-before +after):\n%s", diff)
	}
	p.Do(func() {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			t.Error("the pod end is still there")
		}
	})
	w.attach(p) // the same plan fits again
	w.noDifference(p)
}

// hostState lists links, routes and neighbours of the host.
func hostState(w *world) (state []string) {
	w.host.Do(func() {
		links, err := netlink.LinkList()
		if err != nil {
			w.Fatal(err)
		}
		for _, l := range links {
			state = append(state, l.Attrs().Name)
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
			if err != nil {
				w.Fatal(err)
			}
			for _, r := range routes {
				state = append(state, r.String())
			}
			neighbours, err := netlink.NeighList(0, family)
			if err != nil {
				w.Fatal(err)
			}
			for _, n := range neighbours {
				state = append(state, n.String())
			}
		}
	})
	return state
}

// foreignLinks makes links that only resemble ours.
func foreignLinks(w *world) []string {
	names := map[string]string{ // name: alias
		"weft00000000000": "something else",    // the form of our name, a foreign alias
		"weft0":           "",                  // our prefix, not our form, no alias
		"eth7":            "",                  // nothing of ours
		"weft0000000000A": "",                  // a letter that our names do not have
		"weftfoo":         "wefty things",      // our word, not our mark
		"uplink":          " weft /run/weft x", // the mark is not at the beginning
	}
	var list []string
	w.host.Do(func() {
		for name, alias := range names {
			l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: fmt.Sprintf("peer%d", len(list))}
			err := netlink.LinkAdd(l)
			if err == nil && alias != "" {
				err = netlink.LinkSetAlias(l, alias)
			}
			if err != nil {
				w.Fatal(err)
			}
			list = append(list, name)
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "weft00000000001"}}
		if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetAlias(bridge, "weft /run/weft a/b/c")); err != nil {
			w.Fatal(err)
		}
		list = append(list, bridge.Name) // name and alias of ours, another kind
	})
	return list
}

func TestDetachLeavesForeignLinksAlone(t *testing.T) {
	w := newWorld(t)
	mine := w.attached("10.42.3.7")
	other := w.attached("10.42.3.8")
	foreign := foreignLinks(w)
	for _, name := range foreign {
		var refused *kernel.ForeignLinkError
		if err := w.h.Detach(name); !errors.As(err, &refused) || refused.Ifname != name {
			t.Errorf("detach %s: error %v, want ForeignLinkError", name, err)
		}
	}
	err := w.h.DetachAll(append(foreign, mine.plan.HostIfname, other.plan.HostIfname, "weft0missing"))
	var refused *kernel.ForeignLinkError
	if !errors.As(err, &refused) {
		t.Errorf("detach all: error %v, want ForeignLinkError", err)
	}
	for _, name := range foreign {
		if !w.linkExists(name) {
			t.Errorf("foreign link %s was deleted", name)
		}
	}
	if w.linkExists(mine.plan.HostIfname) || w.linkExists(other.plan.HostIfname) {
		t.Error("our links survived because of foreign ones in the same call")
	}
}

// TestKilledBetweenCreationAndAlias: such a link has no alias yet.
func TestKilledBetweenCreationAndAlias(t *testing.T) {
	w := newWorld(t)
	half := attach.Key{Network: "n", ContainerID: "c", Ifname: "eth0"}.HostIfname()
	w.host.Do(func() {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: half}, PeerName: "eth0"}); err != nil {
			t.Fatal(err)
		}
	})
	owned, err := w.h.Owned()
	if err != nil || len(owned) != 1 || owned[0].HostIfname != half || owned[0].Alias != "" {
		t.Errorf("owned %v, error %v", owned, err)
	}
	if err := w.h.Detach(half); err != nil {
		t.Error(err)
	}
	if w.linkExists(half) {
		t.Error("the half-made link is still there")
	}
}

func TestDetachAll(t *testing.T) {
	w := newWorld(t)
	before := hostState(w)
	var names []string
	for i := range 100 {
		names = append(names, w.attached(fmt.Sprintf("10.42.3.%d", i+1)).plan.HostIfname)
	}
	kept := w.attached("10.42.4.1")
	names = append(names, "weft0000missing", names[0])
	for range 2 {
		if err := w.h.DetachAll(names); err != nil {
			t.Fatal(err)
		}
	}
	w.noDifference(kept)
	if err := w.h.Detach(kept.plan.HostIfname); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, hostState(w)); diff != "" {
		t.Errorf("host before and after (-before +after):\n%s", diff)
	}
	if err := w.h.DetachAll(nil); err != nil {
		t.Errorf("nothing to detach: %v", err)
	}
}

// TestConcurrentDetachAll: two processes may collect garbage at once, and share
// the group while they do.
func TestConcurrentDetachAll(t *testing.T) {
	w := newWorld(t)
	var names []string
	for i := range 40 {
		names = append(names, w.attached(fmt.Sprintf("10.42.3.%d", i+1)).plan.HostIfname)
	}
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = w.h.DetachAll(names[i*8 : i*8+16]) }) // they overlap
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	owned, err := w.h.Owned()
	if err != nil || len(owned) != 0 {
		t.Errorf("left behind: %v, error %v", owned, err)
	}
}

func TestOwned(t *testing.T) {
	w := newWorld(t)
	foreignLinks(w)
	a := w.attached("10.42.3.7", "fd00:42:3::7")
	b := w.attached("10.42.3.8")
	owned, err := w.h.Owned()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]netip.Addr{}
	for _, o := range owned {
		got[o.HostIfname+" "+o.Alias] = o.Addresses
	}
	want := map[string][]netip.Addr{
		a.plan.HostIfname + " " + a.plan.Alias: {a.addr(gateway4), a.addr(gateway6)},
		b.plan.HostIfname + " " + b.plan.Alias: {b.addr(gateway4)},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("owned (-want +got):\n%s", diff)
	}
}

// TestOwnedDuringChurn: interrupted dumps are repeated, so that what exists
// all along is listed each time.
func TestOwnedDuringChurn(t *testing.T) {
	w := newWorld(t)
	var stable []*pod
	for i := range 60 {
		stable = append(stable, w.attached(fmt.Sprintf("10.42.3.%d", i+1)))
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	churn := w.newPod("10.42.9.1")
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				done <- nil
				return
			default:
				err = errors.Join(w.h.Attach(churn.ns, churn.plan), w.h.Detach(churn.plan.HostIfname))
			}
		}
		done <- err
	}()
	for range 40 {
		owned, err := w.h.Owned()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, o := range owned {
			found[o.HostIfname] = len(o.Addresses) == 1
		}
		for _, p := range stable {
			if !found[p.plan.HostIfname] {
				t.Fatalf("%s is missing from a list of %d, or its address is", p.plan.HostIfname, len(owned))
			}
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNothingLeaks: file descriptors and threads after 200 attachments.
func TestNothingLeaks(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("10.42.3.7", "fd00:42:3::7")
	p.plan.Sysctls = []attach.Sysctl{{Key: "net.ipv4.conf.eth0.arp_filter", Value: "1"}}
	count := func(what string) int {
		list, err := os.ReadDir("/proc/self/" + what)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	round := func() {
		w.attach(p)
		w.noDifference(p)
		if err := w.h.DetachAll([]string{p.plan.HostIfname}); err != nil {
			t.Fatal(err)
		}
	}
	round() // fills the pool of sockets
	fds, threads := count("fd"), count("task")
	for range 200 {
		round()
	}
	if now := count("fd"); now > fds {
		t.Errorf("%d file descriptors, %d before", now, fds)
	}
	if now := count("task"); now > threads+4 { // the runtime may start a few for system calls that last
		t.Errorf("%d threads, %d before", now, threads)
	}
}

func TestClosedHandleRefuses(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("10.42.3.7")
	w.h.Close()
	w.h.Close()
	if err := w.h.Attach(p.ns, p.plan); err == nil {
		t.Error("a closed handle attached")
	}
}

func TestUplinkMTU(t *testing.T) {
	for _, c := range []struct {
		name, route string
		want        int
	}{
		{"no default route", "", kernel.DefaultMTU},
		{"IPv4", "0.0.0.0/0", 1400},
		{"IPv6", "::/0", 1400},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.route != "" {
				w.host.Do(func() { addUplink(t, c.route) })
			}
			if mtu, err := w.h.UplinkMTU(); err != nil || mtu != c.want {
				t.Errorf("mtu %d, error %v, want %d", mtu, err, c.want)
			}
		})
	}
}

// addUplink makes an interface and leads a route to it.
func addUplink(t *testing.T, route string) {
	l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink", MTU: 1400}, PeerName: "wire"}
	wire := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "wire"}}
	if err := errors.Join(netlink.LinkAdd(l), netlink.LinkSetUp(l), netlink.LinkSetUp(wire)); err != nil {
		t.Fatal(err)
	}
	_, dst, err := net.ParseCIDR(route)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Index, Dst: dst, Scope: netlink.SCOPE_LINK}); err != nil {
		t.Fatal(err)
	}
}
