// SPDX-License-Identifier: Apache-2.0

package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/reconcile"
)

// patience bounds what the kernel does at once.
const patience = 10 * time.Second

// until makes passes, without letting time pass, until something is so.
func (h *host) until(what string, so func() bool) {
	h.Helper()
	for deadline := time.Now().Add(patience); !so(); runtime.Gosched() {
		if time.Now().After(deadline) {
			h.Fatalf("not so after %s: %s: %+v", patience, what, h.routes())
		}
		h.Step(h.now)
	}
}

func (h *host) routes() reconcile.Status {
	kinds := h.Status()
	return kinds[slices.IndexFunc(kinds, func(s reconcile.Status) bool { return s.Kind == fabric.Routes })]
}

// watch passes on what the kernel reports.
func (h *host) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- h.k.Monitor(ctx, func(n kernel.Notice) { h.Noticed(n.Kind, n.Key, n.Value, n.Gone) })
	}()
	h.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			h.Errorf("the monitor ended with %v", err)
		}
	})
}

// A pod was made anew on another node while its former sandbox here does not end.
// Its route waits, disturbs nobody else, and is made when the sandbox goes.
func TestFormerSandboxHasTheAddress(t *testing.T) {
	for _, c := range []struct{ block, former, moving, to, way string }{
		{"10.42.1.0/24", "10.42.1.7", "10.42.1.8", "node2", "uplink0"},
		{"10.42.1.0/24", "10.42.1.7", "10.42.1.8", "node3", topology.VXLANDevice4},
		{"fd00:42:0:1::/64", "fd00:42:0:1::7", "fd00:42:0:1::8", "node2", "uplink0"},
		{"fd00:42:0:1::/64", "fd00:42:0:1::7", "fd00:42:0:1::8", "node3", topology.VXLANDevice4},
	} {
		t.Run(fmt.Sprint(c.former, " now on ", c.to), func(t *testing.T) {
			h := newHost(t)
			h.ns.Do(func() { h.must(netlink.LinkSetAlias(h.link("pod0"), "weft /run/weft weft/c1/eth0 prod/db-0")) })
			key := func(addr string) topology.RouteKey {
				a := netip.MustParseAddr(addr)
				return topology.RouteKey{Dst: netip.PrefixFrom(a, a.BitLen())}
			}
			former, moving := key(c.former), key(c.moving)
			h.lease(c.block, "node1")
			h.podHere(c.former, true)
			h.watch()
			h.settle()
			h.lease(former.Dst.String(), c.to)
			h.lease(moving.Dst.String(), c.to)
			for range 30 { // so that the next attempt is far away
				h.now = h.now.Add(time.Minute)
				h.Step(h.now)
			}
			s := h.routes()
			if len(s.Failing) > 0 || len(s.Awaiting) != 1 || !strings.Contains(s.Awaiting[0].Err.Error(), "the former sandbox behind pod0") {
				t.Fatalf("status %+v", s)
			}
			h.expect(c.former, "pod0")
			h.expect(c.moving, c.way)

			h.lease(moving.Dst.String(), "node1")
			done := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				done <- h.WaitRoutes(ctx, moving)
			}()
			h.until("the route of the other pod's address is gone", func() bool { return len(done) > 0 })
			h.must(<-done)
			h.podHere(c.moving, true) // nothing is in its way

			h.ns.Do(func() { h.must(netlink.LinkDel(h.link("pod0"))) })
			h.until("the pod is reached where it is", func() bool { return h.way(c.former) == c.way })
			if s := h.routes(); len(s.Awaiting)+len(s.Failing) > 0 {
				t.Errorf("status %+v", s)
			}
		})
	}
}
