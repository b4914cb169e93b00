// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net/netip"
	"testing"
)

// What a network manager that cleans up, or a hand that slips, takes from the
// host's side comes back, and nothing else changes.
func TestMend(t *testing.T) {
	for name, rob := range map[string]func(w *world, dev string){
		"routes flushed": func(w *world, _ string) {
			w.ip("route", "flush", "proto", "119")
			w.ip("-6", "route", "flush", "proto", "119")
		},
		"down and up": func(w *world, dev string) { w.ip("link", "set", dev, "down"); w.ip("link", "set", dev, "up") },
		"down":        func(w *world, dev string) { w.ip("link", "set", dev, "down") },
		"neighbours":  func(w *world, dev string) { w.ip("neigh", "flush", "dev", dev, "nud", "all") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ensure(testNode())
			a, b := w.attached("10.42.3.7", "fd00:42:3::7"), w.attached("10.42.3.8", "fd00:42:3::8")
			if n, err := w.h.Mend(a.plan); err != nil || n != 0 {
				t.Errorf("of a whole one: %d objects mended, %v", n, err)
			}
			rob(w, a.plan.HostIfname)
			mended := 0
			for _, p := range []*pod{a, b} {
				n, err := w.h.Mend(p.plan)
				if err != nil {
					t.Fatal(err)
				}
				mended += n
			}
			if mended == 0 {
				t.Error("nothing was missing")
			}
			for _, p := range []*pod{a, b} {
				w.noDifference(p)
				if n, err := w.h.Mend(p.plan); err != nil || n != 0 {
					t.Errorf("a second time: %d objects mended, %v", n, err)
				}
			}
			for _, dst := range []string{"10.42.3.7", "fd00:42:3::7"} {
				if _, err := exchange(t, b.NS, a.NS, netip.MustParseAddr(dst)); err != nil {
					t.Errorf("%s: %v", dst, err)
				}
			}
		})
	}
}

// An interface that is gone is not made anew.
func TestMendWithoutInterface(t *testing.T) {
	w := newWorld(t)
	p := w.attached("10.42.3.7")
	w.ip("link", "del", p.plan.HostIfname)
	if n, err := w.h.Mend(p.plan); err != nil || n != 0 {
		t.Errorf("%d objects mended, %v", n, err)
	}
}
