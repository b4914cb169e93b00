// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/agent"
	"weft.dev/weft/test/crash/node"
)

// What a steady agent may hold more at the end than after its warm-up.
const (
	moreRSS     = 4 << 10 // KiB
	moreThreads = 4
)

func newNode(t *testing.T, name string) *node.Node {
	t.Helper()
	n, err := node.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// TestThick is the soak against an agent that is killed now and then during the
// first seven tenths, and then watched for what it gathers.
func TestThick(t *testing.T) {
	n := newNode(t, "thick")
	start := func() *node.Agent {
		a, err := n.StartAgent(agentNetwork, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := start()
	t.Cleanup(func() { a.Kill() })
	baseline := view(t, n)
	s := newSoak(t, n, thickConfig(n), pairs(t))

	var restarting sync.Mutex
	s.agentDies = func() {
		restarting.Lock()
		defer restarting.Unlock()
		a.Kill()
		next, err := n.StartAgent(agentNetwork, time.Second)
		if err != nil {
			t.Error(err)
			return
		}
		a = next
	}
	s.run(s.total * 7 / 10)
	s.agentDies()
	s.agentDies = nil

	s.run(s.total * 8 / 10)
	s.settle(baseline)
	warm := resources(t, a)
	s.run(s.total)
	s.settle(baseline)
	s.steady(a, warm)
	s.summary(fmt.Sprintf("agent: %d KiB, %d descriptors, %d threads after the warm-up", warm.RSS, warm.FDs, warm.Threads))
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
}

// TestThin is the soak without an agent.
func TestThin(t *testing.T) {
	n := newNode(t, "thin")
	s := newSoak(t, n, thinConfig(n), max(pairs(t)/10, 100))
	s.run(1) // makes the state directory
	s.settle(nil)
	baseline := view(t, n)
	s.run(s.total)
	s.settle(baseline)
	s.summary("")
}

// TestAgentInside is the soak against an agent in the test's own process, where
// its goroutines can be counted.
func TestAgentInside(t *testing.T) {
	n, err := node.Here("inside")
	if err != nil {
		t.Fatal(err)
	}
	config, err := v1alpha1.ParseAgentConfiguration([]byte(fmt.Sprintf(
		"{apiVersion: weft.dev/v1alpha1, kind: AgentConfiguration, stateDir: %s, socket: %s, network: %s, gc: {interval: 1s}}",
		n.StateDir, n.Socket, agentNetwork)))
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	ready := make(signalWriter, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, config, "", "test", slog.New(slog.NewTextHandler(ready, nil)), new(slog.LevelVar))
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	// The log's first line says that it is ready.
	s := newSoak(t, n, thickConfig(n), max(pairs(t)/20, 100))
	baseline := view(t, n)
	s.run(s.total / 2)
	s.settle(baseline)
	warm := runtime.NumGoroutine()
	s.run(s.total)
	s.settle(baseline)
	if !node.Until(node.Limit, func() bool { return runtime.NumGoroutine() <= warm }) {
		t.Errorf("%d goroutines, %d after the warm-up", runtime.NumGoroutine(), warm)
	}
	s.summary(fmt.Sprintf("%d goroutines after the warm-up and now", warm))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
}

// signalWriter tells that the agent is ready.
type signalWriter chan struct{}

var _ io.Writer = signalWriter(nil)

func (w signalWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("agent ready")) {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

func view(t *testing.T, n *node.Node) node.View {
	t.Helper()
	v, err := n.View()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// settle has everything collected that no DEL ended, and expects the node to be
// as it was. Without a baseline only the facts are looked at.
func (s *soak) settle(baseline node.View) {
	s.Helper()
	if left := s.m.list(); len(left) > 0 {
		s.Fatalf("the test has not ended %v", left)
	}
	diff := ""
	if !node.Until(node.Limit, func() bool {
		s.gc(nil)
		f, err := s.n.Facts()
		if err != nil {
			s.Fatal(err)
		}
		if diff = fmt.Sprintf("%d records", f.Len()); f.Len() > 0 || baseline == nil {
			return f.Len() == 0
		}
		diff = baseline.Compare(view(s.T, s.n))
		return diff == ""
	}) {
		s.Fatalf("the node is not as before: %s", diff)
	}
}

func resources(t *testing.T, a *node.Agent) node.Resources {
	t.Helper()
	r, err := a.Resources()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// steady expects the agent to hold what it held after its warm-up.
func (s *soak) steady(a *node.Agent, warm node.Resources) {
	s.Helper()
	var now node.Resources
	if !node.Until(node.Limit, func() bool {
		now = resources(s.T, a)
		return now.FDs <= warm.FDs && now.Threads <= warm.Threads+moreThreads && now.RSS <= warm.RSS+moreRSS
	}) {
		s.Errorf("the agent holds %+v, after the warm-up %+v; at most %d KiB and %d threads more are steady", now, warm, moreRSS, moreThreads)
	}
	fmt.Printf("soak: %s: agent: %d KiB, %d descriptors, %d threads at the end\n", s.Name(), now.RSS, now.FDs, now.Threads)
}

func (s *soak) summary(more string) {
	c := s.m.counts()
	took := time.Since(s.began)
	fmt.Printf("soak: %s: %d pairs in %s (%.0f/s): killed %d ADD, %d DEL, %d agents; %d sandboxes gone without DEL; repeated %d ADD, %d DEL; "+
		"told to try again %d times; %d GC; %d looks at the host's routes with %d addresses in use: 0 duplicates, 0 leaks. %s\n",
		s.Name(), c.pairs, took.Round(100*time.Millisecond), float64(c.pairs)/took.Seconds(), c.addKills, c.delKills, c.agentKills,
		c.abandoned, c.repeatedAdds, c.repeatedDels, c.tryAgain, c.gcs, c.looks, c.judged, more)
}
