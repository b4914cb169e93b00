// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// The tests in this file run labs of several nodes, with real agents.

// upNodes makes a lab with one pod per node, named pod1 for node1.
func upNodes(t *testing.T, h Host, s Spec) {
	t.Helper()
	s.Name = "real"
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for n := range s.Nodes {
		addPodTo(t, h, fmt.Sprintf("node%d", n+1))
	}
}

func addPodTo(t *testing.T, h Host, node string) Pod {
	t.Helper()
	p, err := h.AddPod(t.Context(), "real", PodSpec{Name: podOf(node), Node: node})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func podOf(node string) string { return strings.Replace(node, "node", "pod", 1) }

// pairsOf is the number of rows of Check for dual-stack pods.
func pairsOf(pods int) int { return 2 * pods * pods } // each has the others and the outside

// eventually polls for what agents do in their own time.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

func status(t *testing.T, h Host) Status {
	t.Helper()
	s, err := h.Status(t.Context(), "real")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestThreeNodes: what happens to a small cluster in its life.
func TestThreeNodes(t *testing.T) {
	h := realHost(t)
	unchanged := observe(t, h.BinDir)
	upNodes(t, h, Spec{Nodes: 3, Segments: 2})
	t.Cleanup(func() {
		if err := h.Down(context.Background(), "real"); err != nil {
			t.Errorf("down: %v", err)
		}
		unchanged("after down")
	})
	s := status(t, h)
	if len(s.Nodes) != 3 || !s.Healthy() || s.Nodes[2].Segment != "segment1" || s.Nodes[1].Segment != "segment2" {
		t.Errorf("status: %+v", s)
	}
	everyPairTalks(t, h, pairsOf(3))

	t.Run("an agent is killed under a stream", func(t *testing.T) { killUnderStream(t, h) })
	t.Run("stop and start twice", func(t *testing.T) { stopAndStart(t, h) })
	t.Run("a link is cut", func(t *testing.T) { cutAndRestore(t, h) })
	t.Run("a node gets other addresses", func(t *testing.T) {
		addrs := []netip.Addr{netip.MustParseAddr("198.18.1.222"), netip.MustParseAddr("2001:db8:18:1::222")}
		if err := h.SetNodeAddresses("real", "node3", addrs); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the others know", func() error {
			pairs, err := h.Check(t.Context(), "real")
			return errors.Join(err, Judge(pairs))
		})
	})
	t.Run("a node is added", func(t *testing.T) {
		n, err := h.AddNode(t.Context(), "real", 0)
		if err != nil || n.Name != "node4" || n.Segment != "segment2" {
			t.Fatalf("added %+v, %v", n, err)
		}
		addPodTo(t, h, "node4")
		everyPairTalks(t, h, pairsOf(4))
	})
	t.Run("a node is removed", func(t *testing.T) { removeNode(t, h) })
	t.Run("its place is taken again", func(t *testing.T) {
		n, err := h.AddNode(t.Context(), "real", 1)
		if err != nil || n.Name != "node2" || n.Segment != "segment1" {
			t.Fatalf("added %+v, %v", n, err)
		}
		addPodTo(t, h, "node2")
		everyPairTalks(t, h, pairsOf(4))
	})
	t.Run("the commands", func(t *testing.T) { labCommands(t, h) })
	t.Run("refusals", func(t *testing.T) {
		_, err := h.AddNode(t.Context(), "real", 3)
		wantError(t, err, "segment 3", "1 to 2")
		wantError(t, h.StopNode("real", "node9"), `"node9"`)
		_, err = h.Stream(t.Context(), "real", "pod1", "pod9", time.Second)
		wantError(t, err, `"pod9"`)
	})
}

func killUnderStream(t *testing.T, h Host) {
	agents := func() string { return status(t, h).Nodes[1].Agent }
	before := agents()
	type outcome struct {
		rows []Stream
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		rows, err := h.Stream(context.Background(), "real", "pod1", "pod2", 2*time.Second)
		ended <- outcome{rows, err}
	}()
	if err := h.KillNode("real", "node2"); err != nil {
		t.Fatal(err)
	}
	if got := agents(); got != "not running" {
		t.Errorf("agent of node2 after it was killed: %s", got)
	}
	if err := h.StartNode(t.Context(), "real", "node2"); err != nil {
		t.Fatal(err)
	}
	if after := agents(); after == before || !strings.HasPrefix(after, "running") {
		t.Errorf("agent of node2: %s, before it was killed %s", after, before)
	}
	got := <-ended
	if got.err != nil || len(got.rows) != 2 {
		t.Fatalf("stream: %+v, %v", got.rows, got.err)
	}
	for _, r := range got.rows {
		if !r.OK() || r.Messages < 100 || r.Repeated != 0 {
			t.Errorf("stream: %+v", r)
		}
	}
}

func stopAndStart(t *testing.T, h Host) {
	for _, step := range []struct {
		what string
		do   func() error
		runs bool
	}{
		{"stop", func() error { return h.StopNode("real", "node1") }, false},
		{"stop again", func() error { return h.StopNode("real", "node1") }, false},
		{"kill what is stopped", func() error { return h.KillNode("real", "node1") }, false},
		{"start", func() error { return h.StartNode(t.Context(), "real", "node1") }, true},
		{"start again", func() error { return h.StartNode(t.Context(), "real", "node1") }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if s := status(t, h); s.Healthy() != step.runs || strings.HasPrefix(s.Nodes[0].Agent, "running") != step.runs {
			t.Errorf("%s: %+v", step.what, s.Nodes[0])
		}
		everyPairTalks(t, h, pairsOf(3))
	}
}

func cutAndRestore(t *testing.T, h Host) {
	if err := h.CutLink("real", "node3"); err != nil {
		t.Fatal(err)
	}
	pairs, err := h.Check(t.Context(), "real")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		if cut := p.From == "pod3" || p.To == "pod3"; p.OK() == cut {
			t.Errorf("with node3 cut off: %v", p.Cells())
		}
	}
	if err := h.RestoreLink("real", "node3"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the link is restored", func() error {
		pairs, err := h.Check(t.Context(), "real")
		return errors.Join(err, Judge(pairs))
	})
}

func removeNode(t *testing.T, h Host) {
	l := h.layout("real")
	leases, err := l.leases()
	if err != nil {
		t.Fatal(err)
	}
	var subnets []netip.Prefix
	for _, one := range leases {
		if one.of("node2") {
			subnets = append(subnets, one.Spec.Subnet)
		}
	}
	if len(subnets) != 2 {
		t.Fatalf("node2 has leases of %v, want one per family", subnets)
	}
	if got := routesTo(t, l.netns("node1"), subnets); got != 2 {
		t.Errorf("node1 has %d routes to node2's pods before it goes, want 2", got)
	}
	if err := h.RemoveNode("real", "node2"); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"node1", "node3", "node4"} {
		eventually(t, "node2's routes go from "+node, func() error {
			if n := routesTo(t, l.netns(node), subnets); n > 0 {
				return fmt.Errorf("%d routes", n)
			}
			return nil
		})
	}
	if leases, err = l.leases(); err != nil || slices.ContainsFunc(leases, func(one lease) bool { return one.of("node2") }) {
		t.Errorf("leases %+v, %v", leases, err)
	}
	for _, path := range []string{l.manifest("node2"), l.record("node2"), l.node("node2"), l.netns("node2"), l.pod("pod2"), l.netns("pod2")} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	everyPairTalks(t, h, pairsOf(3))
}

// labCommands runs the program itself: what it prints and how it ends.
func labCommands(t *testing.T, h Host) {
	for _, tc := range []struct {
		args   string
		output []string
		status int
	}{
		{"check", []string{"FROM  TO", "pod1", "outside", "IPv6", "all 32 pairs talk"}, 0},
		{"check -o json", []string{`"from": "pod1"`, `"icmp"`}, 0},
		{"stream pod1 pod4 --for 200ms", []string{"MESSAGES", "IPv4", "IPv6"}, 0},
		{"stream pod1", []string{"accepts 2 arg(s)"}, 1},
		{"link cut node3", []string{"node3: link to segment1 is cut"}, 0},
		{"stream pod1 pod3 --for 100ms", []string{"connect", "messages were lost"}, 1},
		{"check", []string{"pod3", "no reply", "pairs cannot talk"}, 1},
		{"status", []string{"cut", "not healthy"}, 1},
		{"link restore node3", []string{"node3: link to segment1 is up"}, 0},
		{"node stop node3", []string{"node3: agent ended"}, 0},
		{"node kill node3", []string{"node3: no agent runs"}, 0},
		{"node start node3", []string{"node3: agent started", "is ready"}, 0},
		{"node start node3", []string{"runs already"}, 0},
		{"node dance node3", []string{"unknown command"}, 1},
	} {
		cmd := exec.Command(filepath.Join(h.BinDir, "weft"), append([]string{"lab", "--name", "real"}, strings.Fields(tc.args)...)...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != tc.status {
			t.Errorf("%s: status %d, want %d: %s", tc.args, got, tc.status, out)
		}
		want(t, string(out), tc.output...)
	}
}

// routesTo counts the routes in a namespace to these destinations.
func routesTo(t *testing.T, netns string, subnets []netip.Prefix) int {
	t.Helper()
	h, ns, err := netlinkIn(netns)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	defer h.Close()
	routes, err := h.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if dst, err := netip.ParsePrefix(r.Dst.String()); err == nil && slices.Contains(subnets, dst) {
			n++
		}
	}
	return n
}

// TestBackendsAndFamilies: two nodes on two segments and one on the first's,
// of each family and by each backend that reaches them.
func TestBackendsAndFamilies(t *testing.T) {
	h := realHost(t)
	for _, tc := range []struct {
		family   Family
		backend  Backend
		segments int
	}{
		{IPv4, Auto, 2}, {IPv6, Auto, 2}, {IPv4, VXLAN, 1}, {IPv6, VXLAN, 1}, {Dual, Native, 1},
	} {
		t.Run(fmt.Sprintf("%s %s %d", tc.family, tc.backend, tc.segments), func(t *testing.T) {
			unchanged := observe(t, h.BinDir)
			upNodes(t, h, Spec{Nodes: 3, Segments: tc.segments, Family: tc.family, Backend: tc.backend})
			pairs := pairsOf(3)
			if tc.family != Dual {
				pairs /= 2
			}
			everyPairTalks(t, h, pairs)
			if err := h.Down(t.Context(), "real"); err != nil {
				t.Errorf("down: %v", err)
			}
			unchanged("after down")
		})
	}
}

// TestRealNodeCommandsKilledAtEachStep is the crash test with a network to
// lose.
func TestRealNodeCommandsKilledAtEachStep(t *testing.T) {
	h := realHost(t)
	nodeCommandsKilled(t, h, Spec{Name: "real", Nodes: 2}, func(pods ...string) {
		for _, p := range pods {
			if _, err := h.AddPod(t.Context(), "real", PodSpec{Name: podOf(p), Node: p}); err != nil {
				t.Error(err)
			}
		}
		everyPairTalks(t, h, pairsOf(len(pods)))
		for _, p := range pods {
			if err := h.DeletePod(t.Context(), "real", podOf(p)); err != nil {
				t.Error(err)
			}
		}
	})
}
