// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/reconcile"
)

// A pod's own route in the way is nobody's mistake: the operation waits for it,
// and whoever watches learns when it is gone, whatever took it away.
func TestPodRouteIsAwaited(t *testing.T) {
	for _, a := range []string{"10.42.3.7", "fd00:42:3::7"} {
		for name, takeAway := range map[string]func(w *world, p *pod){
			"detached": func(w *world, p *pod) {
				if err := w.h.Detach(p.plan.HostIfname); err != nil {
					w.Fatal(err)
				}
			},
			"down":    func(w *world, p *pod) { w.ip("link", "set", p.plan.HostIfname, "down") },
			"by hand": func(w *world, p *pod) { w.ip("route", "del", a, "dev", p.plan.HostIfname) },
		} {
			t.Run(a+" "+name, func(t *testing.T) {
				w := newWorld(t)
				w.devices()
				p := w.attached(a)
				addr := netip.MustParseAddr(a)
				op := delta.Op[topology.RouteKey, topology.Route]{
					Verb: delta.Add, Key: topology.RouteKey{Dst: netip.PrefixFrom(addr, addr.BitLen())},
					Want: topology.Route{Gateway: addr, Dev: topology.VXLANDevice4}, // as it is by VXLAN
				}
				n := monitored(w)
				unchanged := w.unchanged(map[bool]string{true: "-4", false: "-6"}[addr.Is4()], "route", "show", "table", "all")
				err := w.h.FabricRoutes().Apply([]delta.Op[topology.RouteKey, topology.Route]{op})[0]
				var held *kernel.PodRouteError
				var awaiting reconcile.Awaiting
				if !errors.As(err, &held) || held.Device != p.plan.HostIfname || held.Dst != op.Key.Dst || !errors.As(err, &awaiting) || !awaiting.Awaits() {
					t.Fatalf("error %v", err)
				}
				if strings.Contains(err.Error(), "delete") || !strings.Contains(err.Error(), "former sandbox behind "+held.Device) {
					t.Errorf("error %v", err)
				}
				unchanged(t)
				n.since()
				takeAway(w, p)
				if got := n.since(); !slices.Contains(got, kernel.Notice{Kind: "pods"}) {
					t.Errorf("reported %+v", got)
				}
				apply(t, w.h.FabricRoutes(), delta.Add, op.Key, op.Want)
			})
		}
	}
}

// A route of our protocol that leads to no pod is somebody's mistake.
func TestRouteOfOurProtocolToNoPodIsForeign(t *testing.T) {
	w, s := routesSubject(t)
	w.ip("route", "add", "10.42.6.0/32", "dev", "uplink", "proto", "119", "scope", "link")
	k := topology.RouteKey{Dst: netip.MustParsePrefix("10.42.6.0/32")}
	err := s.Driver.Apply([]delta.Op[topology.RouteKey, topology.Route]{{Verb: delta.Add, Key: k, Want: s.Value(k, 0)}})[0]
	var foreign *kernel.ForeignRouteError
	if !errors.As(err, &foreign) || foreign.Device != "uplink" {
		t.Errorf("error %v", err)
	}
}
