// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// watch gathers what the kernel of a node tells of changes of Weft's objects,
// by kind and family.
type watch struct {
	node string
	end  chan struct{}
	mu   sync.Mutex
	seen map[string][]string
}

func (w *watch) note(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[kind] = append(w.seen[kind], fmt.Sprintf(format, args...))
}

// watchAll watches nodes from now on.
func (m *mesh) watchAll(nodes ...string) map[string]*watch {
	m.Helper()
	watches := map[string]*watch{}
	for _, n := range nodes {
		watches[n] = m.watch(n)
	}
	return watches
}

func (m *mesh) watch(node string) *watch {
	m.Helper()
	w := &watch{node: node, end: make(chan struct{}), seen: map[string][]string{}}
	ns, err := kernel.OpenNetns(m.path("netns", node))
	m.must(err)
	defer func() { _ = ns.Close() }()
	handle := vnetns.NsHandle(ns.FD())
	devices := map[int]bool{}
	h, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	m.must(err)
	defer h.Close()
	for _, name := range []string{"weft-vxlan", "weft-vxlan6"} {
		if l, err := h.LinkByName(name); err == nil {
			devices[l.Attrs().Index] = true
		}
	}
	routes, neighbours := make(chan netlink.RouteUpdate, 256), make(chan netlink.NeighUpdate, 256)
	m.must(netlink.RouteSubscribeWithOptions(routes, w.end, netlink.RouteSubscribeOptions{Namespace: &handle}))
	m.must(netlink.NeighSubscribeWithOptions(neighbours, w.end, netlink.NeighSubscribeOptions{Namespace: &handle}))
	go func() {
		for r := range routes {
			if r.Protocol == protocol {
				w.note("route "+familyOf(r.Dst.IP.To4() != nil), "%d %s via %s", r.Type, r.Dst, r.Gw)
			}
		}
	}()
	go func() {
		for n := range neighbours {
			kind := "neighbour "
			if n.Family == unix.AF_BRIDGE {
				kind = "fdb "
			}
			// Multicast has neighbours that the kernel makes.
			if devices[n.LinkIndex] && (n.Family == unix.AF_BRIDGE || n.State&unix.NUD_NOARP == 0) {
				w.note(kind+familyOf(n.IP.To4() != nil), "%d %s %s state %#x", n.Type, n.IP, n.HardwareAddr, n.State)
			}
		}
	}()
	m.Cleanup(w.stop)
	return w
}

func familyOf(ipv4 bool) string {
	if ipv4 {
		return "IPv4"
	}
	return "IPv6"
}

func (w *watch) stop() {
	select {
	case <-w.end:
	default:
		close(w.end)
	}
}

// saw ends a watch and demands that exactly these kinds of objects changed.
func (m *mesh) saw(w *watch, want ...string) {
	m.Helper()
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if kinds := slices.Sorted(maps.Keys(w.seen)); !slices.Equal(kinds, want) {
		m.Errorf("%s: changes of %q, want of %q: %v", w.node, kinds, want, strings.ReplaceAll(fmt.Sprint(w.seen), "\n", "; "))
	}
}
