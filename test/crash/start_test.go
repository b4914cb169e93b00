// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/test/crash/node"
)

// TestKillDuringRecovery kills the agent at every point of its start, while it
// has everything to recover: an ADD and a DEL that died half-way, node objects
// that somebody removed, a network that changed. The next start must do it.
func TestKillDuringRecovery(t *testing.T) {
	t.Parallel()
	st := newStage(t, scenario{mode: thick, verb: "ADD", agent: true, beside: true})
	st.survey()
	pods := st.wreck()
	from := sizeOf(st.agentTrace)
	st.startAgent()
	names, err := passed(st.agentTrace, from)
	st.must(err)
	for _, want := range []string{"kernel-link-delete:before", "kernel-fabric:before", "kernel-nft:after", "journal-after-write"} {
		if !slices.Contains(names, want) {
			t.Fatalf("recovery does not pass %s: %v", want, names)
		}
	}
	st.recovered(pods)
	points := numbered(names)
	for _, at := range points {
		pods := st.wreck()
		st.must(os.WriteFile(st.victimFile(), []byte(at.String()), 0o600))
		_, err := st.n.StartAgent(agentNetwork, time.Hour, "WEFT_CRASH_FILE="+st.victimFile())
		if _, left := os.Stat(st.victimFile()); left == nil || !errors.Is(err, node.ErrAgentEnded) {
			t.Fatalf("the starting agent was not killed at %s: %v", at, err)
		}
		st.startAgent()
		st.recovered(pods)
	}
	fmt.Printf("crash: recovery: %d points, as many agents killed\n", len(points))
}

// wreck leaves behind what killed agents leave, and takes away what the node
// needs. It returns the pods concerned.
func (st *stage) wreck() []pod {
	st.Helper()
	removed, added := st.begin(), st.begin()
	st.ok(st.call("ADD", removed))
	st.strike(point{"kernel-link-add:after", 1}, added)

	// The agent is dead. Had it died while DEL was under way, DEL would have
	// been finished by the shim; this is what is left if that died too.
	l, err := st.n.OpenLocal(true)
	st.must(err)
	defer l.Close()
	releasing, err := facts.EncodeReleasing(time.Now().UnixNano(), removed.key)
	st.must(err)
	config, err := facts.EncodeConfig(time.Now().UnixNano(), `{"pool":{}}`)
	st.must(err)
	st.must(l.Store.Update(context.Background(), func(*facts.Facts) ([]string, error) { return []string{releasing, config}, nil }))
	st.must(st.n.Do(flushNode))
	return []pod{removed, added}
}

// flushNode removes all nftables rules and the gateways' routes.
func flushNode() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.FlushRuleset()
	if err := c.Flush(); err != nil {
		return err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		local := &netlink.Route{Protocol: kernel.RouteProtocol, Table: unix.RT_TABLE_LOCAL}
		routes, err := netlink.RouteListFiltered(family, local, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if err := netlink.RouteDel(&r); err != nil {
				return fmt.Errorf("delete %s: %w", r, err)
			}
		}
	}
	return nil
}

// recovered expects the release to be finished and the ADD undone, but for its
// address, which the repeated ADD gets.
func (st *stage) recovered(pods []pod) {
	st.Helper()
	removed, added := pods[0], pods[1]
	if _, found, err := st.n.Record(removed.key); err != nil || found {
		st.Fatalf("the agent started and did not finish the release of %s (%v)", removed.key, err)
	}
	rec := st.consistent(added)
	if rec.Phase != facts.Intent {
		st.Fatalf("the agent started and the half-done ADD is in phase %s, want intent: its sandbox lives", rec.Phase)
	}
	led, err := st.n.HostRoutes()
	st.must(err)
	if slices.Contains(values(led), added.key.HostIfname()) {
		st.Fatalf("the agent started and the half-done ADD still has routes")
	}
	st.sameAddress(rec, st.ok(st.call("ADD", added)), added)
	st.ok(st.call("DEL", added))
	st.restored(added)
	for _, p := range pods {
		st.must(p.sandbox.Delete())
	}
}
