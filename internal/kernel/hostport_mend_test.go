// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/kernel"
)

// Whatever somebody takes away or changes is found and put back.
func TestMendHostPorts(t *testing.T) {
	nft := func(args ...string) func(w *world, p *pod) {
		return func(w *world, _ *pod) {
			w.host.Do(func() {
				if out, err := exec.Command("nft", args...).CombinedOutput(); err != nil {
					w.Fatalf("nft %v: %v: %s", args, err, out)
				}
			})
		}
	}
	for name, rob := range map[string]func(w *world, p *pod){
		"element":  nft("delete", "element", "inet", kernel.HostPortTable, "any4", "{ tcp . 8080 }"),
		"target":   nft("delete element inet " + kernel.HostPortTable + " any6 { udp . 5353 }; add element inet " + kernel.HostPortTable + " any6 { udp . 5353 : fd00::99 . 1 }"),
		"hairpin":  nft("flush", "set", "inet", kernel.HostPortTable, "hairpin4"),
		"rules":    nft("flush", "chain", "inet", kernel.HostPortTable, "ports"),
		"loopback": nft("flush", "chain", "inet", kernel.HostPortTable, "loopback"),
		"table":    nft("delete", "table", "inet", kernel.HostPortTable),
		"ruleset":  nft("flush", "ruleset"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ports := []attach.Port{port(attach.TCP, "", 8080, 80), port(attach.UDP, "", 5353, 53)}
			a := w.mapped(ports, dual...)
			b := w.mapped([]attach.Port{port(attach.TCP, "", 8081, 80)}, "10.42.3.8", "fd00:42:3::8")
			if n, err := w.h.Mend(a.plan); err != nil || n != 0 {
				t.Errorf("of a whole one: %d mended, %v", n, err)
			}
			rob(w, a)
			if diffs, err := w.h.Compare(a.ns, a.plan); err != nil || len(diffs) == 0 {
				t.Errorf("CHECK finds %v, %v", diffs, err)
			}
			for _, p := range []*pod{a, b} {
				if _, err := w.h.Mend(p.plan); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range []*pod{a, b} {
				w.noDifference(p)
				if n, err := w.h.Mend(p.plan); err != nil || n != 0 {
					t.Errorf("a second time: %d mended, %v", n, err)
				}
			}
		})
	}
}

// What the kernel leaves when a sandbox goes is removed, and only that.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	p := w.newPod(dual...)
	w.mapOnto(p, []attach.Port{port(attach.UDP, "", 5353, 53)})
	limit(p, 10_000_000)
	w.attach(p)
	q := w.newPod("10.42.3.8")
	w.mapOnto(q, []attach.Port{port(attach.TCP, "", 8081, 80)})
	limit(q, 10_000_000)
	w.attach(q)
	if gone, err := w.h.RemoveOrphans(); err != nil || len(gone) != 0 {
		t.Fatalf("of living pods %v was removed, %v", gone, err)
	}
	w.ip("link", "del", p.plan.HostIfname)
	gone, err := w.h.RemoveOrphans()
	if err != nil || len(gone) != 3 { // the shaper, the port in two families
		t.Errorf("%v was removed, %v; want three objects", gone, err)
	}
	for _, o := range gone {
		if o.HostIfname != p.plan.HostIfname || o.Key != (attach.Key{Network: "mynet", ContainerID: "c1", Ifname: "eth0"}) {
			t.Errorf("%+v is not the dead pod's", o)
		}
	}
	if w.linkExists(p.plan.Shaper) {
		t.Error("the shaper is left")
	}
	w.noDifference(q)
	w.ip("link", "del", q.plan.HostIfname)
	if _, err := w.h.RemoveOrphans(); err != nil {
		t.Fatal(err)
	}
	if rules := w.ruleset(); strings.Contains(rules, kernel.HostPortTable) {
		t.Errorf("the table is left:\n%s", rules)
	}
}

// A port that another instance took is refused by name; one whose holder is
// gone is not held.
func TestPortOfAnotherInstance(t *testing.T) {
	w := newWorld(t)
	ports := []attach.Port{port(attach.TCP, "", 8080, 80)}
	first := w.mapped(ports, "10.42.3.7")
	second := w.newPod("10.42.3.8")
	w.mapOnto(second, ports)
	err := w.h.Attach(second.ns, second.plan)
	var taken *kernel.PortTakenError
	if !errors.As(err, &taken) || !strings.Contains(err.Error(), "tcp 0.0.0.0:8080") || !strings.Contains(err.Error(), "mynet/c1/eth0") {
		t.Errorf("got %v", err)
	}
	if err := w.h.Detach(second.plan.HostIfname); err != nil {
		t.Fatal(err)
	}
	w.noDifference(first)
	w.ip("link", "del", first.plan.HostIfname)
	w.attach(second)
	w.noDifference(second)
}

// Owned tells the ports, so that they can be adopted.
func TestOwnedPorts(t *testing.T) {
	w := newWorld(t)
	p := w.mapped([]attach.Port{port(attach.TCP, "", 8080, 80), port(attach.UDP, uplinkAddr4, 53, 53)}, dual...)
	owned, err := w.h.Owned()
	if err != nil || len(owned) != 1 {
		t.Fatal(owned, err)
	}
	for _, m := range p.plan.Ports {
		found := false
		for _, have := range owned[0].Ports {
			found = found || have == m
		}
		if !found {
			t.Errorf("%s is not among %v", m, owned[0].Ports)
		}
	}
}

// Many come and go at once, from several processes' handles, and the table is
// there as long as it is needed.
func TestHostPortsConcurrently(t *testing.T) {
	w := newWorld(t)
	const pods, rounds = 6, 5
	var wg sync.WaitGroup
	errs := make(chan error, pods*rounds*2)
	for i := range pods {
		p := w.newPod(fmt.Sprintf("10.42.4.%d", i+1))
		w.mapOnto(p, []attach.Port{port(attach.TCP, "", uint16(8000+i), 80), port(attach.UDP, "", uint16(8000+i), 53)})
		var h *kernel.Handle
		w.host.Do(func() {
			var err error
			if h, err = kernel.Open(); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(h.Close)
		wg.Go(func() {
			for range rounds {
				if err := h.Attach(p.ns, p.plan); err != nil {
					errs <- err
					return
				}
				diffs, err := h.Compare(p.ns, p.plan)
				if err != nil || len(diffs) > 0 {
					errs <- fmt.Errorf("after ADD: %v, %w", diffs, err)
				}
				if err := h.Detach(p.plan.HostIfname); err != nil {
					errs <- err
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if rules := w.ruleset(); strings.Contains(rules, kernel.HostPortTable) {
		t.Errorf("the table is left:\n%s", rules)
	}
}
