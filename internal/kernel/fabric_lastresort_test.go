// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/reconcile/drivertest"
)

// lastMetric is that of routes of last resort, for ip(8).
const lastMetric = "4278198272"

func lastResort(addr string) topology.RouteKey {
	a := netip.MustParseAddr(addr)
	return topology.RouteKey{Dst: netip.PrefixFrom(a, a.BitLen()), LastResort: true}
}

// leads fails unless packets to an address go to a device, or, "" being given,
// nowhere.
func (w *world) leads(when, addr, dev string) {
	w.Helper()
	w.host.Do(func() {
		routes, err := netlink.RouteGet(netip.MustParseAddr(addr).AsSlice())
		if dev == "" {
			if !errors.Is(err, unix.EHOSTUNREACH) {
				w.Errorf("%s, packets to %s: %v, error %v, want %v", when, addr, routes, err, unix.EHOSTUNREACH)
			}
			return
		}
		link, e := netlink.LinkByName(dev)
		if err != nil || e != nil || routes[0].LinkIndex != link.Attrs().Index {
			w.Errorf("%s, packets to %s: %v, error %v, want dev %s", when, addr, routes, errors.Join(err, e), dev)
		}
	})
}

// A pod's route and that of last resort do not disturb each other, whichever
// comes and goes first. Nothing takes the one for the other.
func TestLastResortBesideAPod(t *testing.T) {
	const four, six = "10.42.3.7", "fd00:42:3::7"
	w := newWorld(t)
	w.outside()
	w.ip("route", "add", "default", "via", "198.51.100.2") // where packets would go without either route
	w.ip("-6", "route", "add", "default", "via", "2001:db8:1::2")
	routes := w.h.FabricRoutes()
	want := map[topology.RouteKey]topology.Route{}
	set := func(verb delta.Verb) {
		t.Helper()
		for _, a := range []string{four, six} {
			apply(t, routes, verb, lastResort(a), topology.Route{})
			if want[lastResort(a)] = (topology.Route{}); verb == delta.Delete {
				delete(want, lastResort(a))
			}
		}
	}
	check := func(when, dev string) {
		t.Helper()
		w.leads(when, four, dev)
		w.leads(when, six, dev)
		if got := observe(t, routes); !maps.Equal(got, want) {
			t.Errorf("%s: observed %v, want %v", when, got, want)
		}
	}
	set(delta.Add)
	check("before the pod", "")
	p := w.attached(four, six)
	check("with the pod", p.plan.HostIfname)
	w.noDifference(p)
	if n, err := w.h.Mend(p.plan); n != 0 || err != nil {
		t.Errorf("mended %d objects, error %v, though nothing is missing", n, err)
	}
	owned, err := w.h.Owned()
	if err != nil || len(owned) != 1 || fmt.Sprint(owned[0].Addresses) != "["+four+" "+six+"]" {
		t.Errorf("owned %+v, error %v", owned, err)
	}

	for _, a := range []string{four, six} {
		w.ip("route", "del", a, "dev", p.plan.HostIfname)
	}
	check("without the pod's routes", "")
	if diffs, err := w.h.Compare(p.ns, p.plan); len(diffs) != 2 || err != nil {
		t.Errorf("differences %v, error %v; want two routes", diffs, err)
	}
	if n, err := w.h.Mend(p.plan); n != 2 || err != nil {
		t.Errorf("mended %d objects, error %v, want 2", n, err)
	}
	check("with the pod's routes again", p.plan.HostIfname)

	set(delta.Delete)
	check("without the last resort", p.plan.HostIfname)
	w.noDifference(p)
	set(delta.Add)
	check("with it, after the pod", p.plan.HostIfname)
	if err := w.h.Detach(p.plan.HostIfname); err != nil {
		t.Fatal(err)
	}
	check("after the pod", "")
	set(delta.Delete)
	check("in the end", "uplink")
}

// One address has routes of both kinds while it moves; a foreign route is in the
// way of that of last resort only if it has the same metric.
func TestLastResortKeepsTheContract(t *testing.T) {
	for _, family := range []struct{ flag, addr string }{{"-4", "10.42.5.0"}, {"-6", "fd00:42:5::"}} {
		t.Run(family.addr, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.RouteKey, topology.Route] {
				w, s := routesSubject(t)
				last := lastResort(family.addr)
				normal, value := topology.RouteKey{Dst: last.Dst}, s.Value
				s.Keys = []topology.RouteKey{last, normal, lastResort("10.42.6.1"), lastResort("fd00:42:6::1")}
				s.Value = func(k topology.RouteKey, i int) topology.Route {
					if k.LastResort {
						return topology.Route{}
					}
					return value(k, i)
				}
				s.Foreign = func(*testing.T, topology.RouteKey) func(t *testing.T) {
					w.ip(family.flag, "route", "add", last.Dst.String(), "dev", "uplink", "metric", lastMetric)
					return w.unchanged(family.flag, "route", "show", "table", "all")
				}
				return s
			})
		})
	}
}

func TestLastResortBesideForeignRoutes(t *testing.T) {
	for _, a := range []string{"10.42.5.7", "fd00:42:5::7"} {
		w, s := routesSubject(t)
		k := lastResort(a)
		w.ip("route", "add", a, "dev", "uplink", "metric", "50")
		apply(t, s.Driver, delta.Add, k, topology.Route{})
		w.leads("somebody's own route", a, "uplink")
		err := s.Driver.Apply([]delta.Op[topology.RouteKey, topology.Route]{
			{Verb: delta.Add, Key: topology.RouteKey{Dst: k.Dst}, Want: s.Value(k, 0)}})[0]
		var foreign *kernel.ForeignRouteError
		if !errors.As(err, &foreign) || foreign.Metric != 50 {
			t.Errorf("a route to a peer beside it: error %v", err)
		}
		w.ip("route", "del", a, "dev", "uplink", "metric", "50")
		w.leads("without it", a, "")
	}
}

// Whatever somebody makes of the route is seen, and repaired, with the pod's
// route before it or not; and none but the one route is deleted.
func TestTamperedLastResort(t *testing.T) {
	for _, c := range []string{
		"blackhole %s", "%s dev uplink", "%s via 2001:db8:1::2 dev uplink", "%[1]s nexthop via inet6 2001:db8:1::2 dev uplink nexthop via inet6 2001:db8:1::3 dev uplink",
	} {
		for _, a := range []string{"10.42.5.7", "fd00:42:5::7"} {
			args := fmt.Sprintf(c, a)
			if strings.HasPrefix(a, "10.") {
				args = strings.Replace(args, "via 2001", "via inet6 2001", 1)
			} else {
				args = strings.ReplaceAll(args, "via inet6", "via")
			}
			for _, withPod := range []bool{false, true} {
				w, s := routesSubject(t)
				dev := ""
				if withPod {
					dev = w.attached(a).plan.HostIfname
				}
				w.ip(append([]string{"route", "add", "proto", "119", "metric", lastMetric}, strings.Fields(args)...)...)
				k := lastResort(a)
				have, there := observe(t, s.Driver)[k]
				if !there || have == (topology.Route{}) {
					t.Errorf("%s, pod %v: observed %v, there %v", args, withPod, have, there)
				}
				for _, op := range []delta.Op[topology.RouteKey, topology.Route]{
					{Verb: delta.Change, Key: k, Have: have}, {Verb: delta.Delete, Key: k},
				} {
					err := s.Driver.Apply([]delta.Op[topology.RouteKey, topology.Route]{op})[0]
					got, there := observe(t, s.Driver)[k]
					if err != nil || got != (topology.Route{}) || there != (op.Verb == delta.Change) {
						t.Errorf("%s, pod %v: %s: observed %v, there %v, error %v", args, withPod, op.Verb, got, there, err)
					}
					if there || withPod {
						w.leads("after "+string(op.Verb), a, dev)
					}
				}
			}
		}
	}
}

// The deletion of an unreachable route of the usual metric means no other route
// to the address, whether there is such a one still, or not any more.
func TestDeletionHitsNoOtherRoute(t *testing.T) {
	for _, a := range []string{"10.42.5.7", "fd00:42:5::7"} {
		for _, stale := range []bool{true, false} {
			w := newWorld(t)
			routes, k := w.h.FabricRoutes(), lastResort(a)
			apply(t, routes, delta.Add, k, topology.Route{})
			p := w.attached(a)
			if !stale {
				w.ip("route", "append", "unreachable", k.Dst.String(), "proto", "119")
			}
			apply(t, routes, delta.Delete, topology.RouteKey{Dst: k.Dst}, topology.Route{})
			w.noDifference(p)
			if got := observe(t, routes); !maps.Equal(got, map[topology.RouteKey]topology.Route{k: {}}) {
				t.Errorf("%s, stale %v: observed %v", a, stale, got)
			}
		}
	}
}

// What happens to the route is reported as the driver observes it, and what
// happens to the pod's is not.
func TestMonitorReportsTheLastResort(t *testing.T) {
	w := newWorld(t)
	w.outside()
	w.devices() // which the monitor is asked about in n.since
	n := monitored(w)
	for _, a := range []string{"10.42.5.7", "fd00:42:5::7"} {
		k := lastResort(a)
		is, gone := kernel.Notice{Kind: "routes", Key: k, Value: topology.Route{}}, kernel.Notice{Kind: "routes", Key: k, Gone: true}
		n.since()
		apply(t, w.h.FabricRoutes(), delta.Add, k, topology.Route{})
		if got := n.since(); !slices.Contains(got, is) {
			t.Errorf("%s made: reported %+v", a, got)
		}
		w.ip("route", "add", a, "dev", "uplink", "proto", "119", "scope", "link")
		if got := n.since(); len(got) > 0 {
			t.Errorf("%s, a pod's route made: reported %+v", a, got)
		}
		w.ip("route", "replace", a, "dev", "uplink", "metric", lastMetric)
		if got := n.since(); !slices.Contains(got, gone) {
			t.Errorf("%s replaced: reported %+v", a, got)
		}
		w.ip("route", "del", a, "dev", "uplink", "metric", lastMetric)
		apply(t, w.h.FabricRoutes(), delta.Add, k, topology.Route{})
		w.ip("route", "del", "unreachable", a, "metric", lastMetric)
		if got := n.since(); !slices.Contains(got, gone) {
			t.Errorf("%s deleted: reported %+v", a, got)
		}
	}
}
