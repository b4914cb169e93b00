// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/cluster"
)

// Events at a peer.
const (
	moved   = "moved"   // another node address in the lease: one FDB entry changes
	left    = "left"    // a lease is deleted: route and neighbour go
	arrived = "arrived" // it is there again: they come
)

var eventKinds = []string{moved, left, arrived}

// measureEvents lets peers change, one at a time, and returns how many
// milliseconds each took from the change of the file to that of the kernel.
func measureEvents(ctx context.Context, c *crowd, s *sandbox, count int) (map[string][]float64, error) {
	w, err := watchKernel(s)
	if err != nil {
		return nil, err
	}
	defer w.close()
	took := map[string][]float64{}
	moves := map[peer]int{}
	for i := range count {
		// Each with another peer, near and far in every order of keys.
		p := peer(i / 4 * 1223 % peerCount)
		kind := []string{moved, left, arrived, moved}[i%4]
		change, want := c.event(p, kind, moves)
		if err := c.prepare(p.lease(p.eventBlock(kind), moves[p])); err != nil {
			return nil, err
		}
		time.Sleep(rest)
		w.drain()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start := time.Now() // the change itself is part of it
		if err := change(); err != nil {
			return nil, err
		}
		last, err := w.await(want)
		if err != nil {
			return nil, fmt.Errorf("event %d, %s %s: %w", i, p.name(), kind, err)
		}
		took[kind] = append(took[kind], millis(last.Sub(start)))
	}
	return took, nil
}

// eventBlock is the block whose lease changes. Both leases of a node are of the
// same age, and then that of the IPv6 block says where the node is.
func (p peer) eventBlock(kind string) netip.Prefix {
	if kind == moved {
		return p.block6()
	}
	return p.block4()
}

// event returns what makes it happen once its manifest is prepared, and what
// the kernel then says.
func (c *crowd) event(p peer, kind string, moves map[peer]int) (change func() error, want []string) {
	block := p.eventBlock(kind)
	change = func() error { return c.publish(block) }
	route, neighbour := "route "+block.String(), "neighbour "+block.Addr().Next().String()
	switch kind {
	case left:
		return func() error { return c.withdraw(block) }, []string{"- " + route, "- " + neighbour}
	case arrived:
		return change, []string{"+ " + route, "+ " + neighbour}
	default:
		moves[p]++
		return change, []string{fmt.Sprintf("+ fdb %s %s", cluster.VTEPMAC(p.name()), p.addresses(moves[p])[0])}
	}
}

// watcher hears what changes in a network namespace.
type watcher struct {
	heard chan news
	done  chan struct{}
}

// news is one notification of the kernel.
type news struct {
	at   time.Time
	what string // "+" or "-", kind, and which
}

func watchKernel(s *sandbox) (*watcher, error) {
	w := &watcher{heard: make(chan news, 1024), done: make(chan struct{})}
	tell := func(gone bool, what string) {
		at, sign := time.Now(), "+ "
		if gone {
			sign = "- "
		}
		select {
		case w.heard <- news{at, sign + what}:
		case <-w.done:
		}
	}
	neighbours := make(chan netlink.NeighUpdate)
	routes := make(chan netlink.RouteUpdate)
	err := errors.Join(
		netlink.NeighSubscribeWithOptions(neighbours, w.done, netlink.NeighSubscribeOptions{Namespace: &s.ns}),
		netlink.RouteSubscribeWithOptions(routes, w.done, netlink.RouteSubscribeOptions{Namespace: &s.ns}),
	)
	if err != nil {
		close(w.done)
		return nil, fmt.Errorf("subscribe to rtnetlink: %w", err)
	}
	go func() {
		for n := range neighbours {
			tell(n.Type == unix.RTM_DELNEIGH, describeNeighbour(n.Neigh))
		}
	}()
	go func() {
		for r := range routes {
			tell(r.Type == unix.RTM_DELROUTE, "route "+r.Dst.String())
		}
	}()
	return w, nil
}

func describeNeighbour(n netlink.Neigh) string {
	if n.Family == unix.AF_BRIDGE {
		return fmt.Sprintf("fdb %s %s", n.HardwareAddr, n.IP)
	}
	return "neighbour " + net.IP(n.IP).String()
}

func (w *watcher) close() { close(w.done) }

// drain forgets what was heard: some changes are told more than once.
func (w *watcher) drain() {
	for w.quiet() != nil {
	}
}

// quiet fails if there is anything to hear.
func (w *watcher) quiet() error {
	select {
	case n := <-w.heard:
		return fmt.Errorf("unexpected news of the kernel: %s", n.what)
	default:
		return nil
	}
}

// await returns when the last of the news that are wanted was heard.
func (w *watcher) await(want []string) (last time.Time, err error) {
	missing := map[string]bool{}
	for _, what := range want {
		missing[what] = true
	}
	limit := time.After(settleLimit)
	for len(missing) > 0 {
		select {
		case n := <-w.heard:
			last = n.at
			delete(missing, n.what)
		case <-limit:
			return last, fmt.Errorf("not within %s: %s", settleLimit, strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
		}
	}
	return last, nil
}
