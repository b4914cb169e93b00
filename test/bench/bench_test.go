// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Every contender is in every round exactly once, every place in the order
// gets everybody, and nobody always follows the same one.
func TestOrder(t *testing.T) {
	const n = 5
	places := map[[2]int]bool{}
	before := map[int]map[int]bool{}
	for round := range 20 * n {
		got := order(n, round)
		sorted := slices.Sorted(slices.Values(got))
		if !slices.Equal(sorted, []int{0, 1, 2, 3, 4}) {
			t.Fatalf("round %d: order %v is no permutation", round, got)
		}
		for place, who := range got {
			places[[2]int{place, who}] = true
			if place > 0 {
				if before[who] == nil {
					before[who] = map[int]bool{}
				}
				before[who][got[place-1]] = true
			}
		}
	}
	if len(places) != n*n {
		t.Errorf("%d of %d pairs of place and contender occur", len(places), n*n)
	}
	for who, previous := range before {
		if len(previous) < 2 {
			t.Errorf("contender %d always follows %v", who, previous)
		}
	}
}

func TestEachRunsEverythingAndBoundsConcurrency(t *testing.T) {
	var calls, running, most atomic.Int32
	err := each(make([]*sandbox, 40), 4, func(int) error {
		calls.Add(1)
		now := running.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		running.Add(-1)
		return nil
	})
	if err != nil || calls.Load() != 40 || most.Load() > 4 {
		t.Errorf("err %v, %d calls, %d at a time; want nil, 40, at most 4", err, calls.Load(), most.Load())
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	broken := errors.New("broken")
	var calls atomic.Int32
	err := each(make([]*sandbox, 1000), 2, func(int) error {
		calls.Add(1)
		return broken
	})
	if !errors.Is(err, broken) || calls.Load() > 2 {
		t.Errorf("err %v after %d calls, want %v after at most 2", err, calls.Load(), broken)
	}
}

func TestTargets(t *testing.T) {
	tests := []struct {
		target  target
		value   float64
		bound   string
		verdict string
	}{
		{target{Bound: 0.33}, 0.33, "≤ 0.33", "reached"},
		{target{Bound: 0.33}, 0.331, "≤ 0.33", "not reached"},
		{target{Bound: 3, AtLeast: true}, 3, "≥ 3", "reached"},
		{target{Bound: 3, AtLeast: true}, 2.99, "≥ 3", "not reached"},
	}
	for _, tt := range tests {
		if got := tt.target.String(); got != tt.bound {
			t.Errorf("bound %q, want %q", got, tt.bound)
		}
		if got := tt.target.verdict(tt.value); got != tt.verdict {
			t.Errorf("%v against %s: %q, want %q", tt.value, tt.bound, got, tt.verdict)
		}
	}
}

func TestPluginMillis(t *testing.T) {
	tests := []struct {
		stderr string
		want   float64
	}{
		{"2026-01-02T03:04:05.678Z weft-cni verb=ADD pod=bench/pod-1 container=c ifname=eth0 ms=3.4 ok\n", 3.4},
		{"weft-cni: garbage collection: x\n2026-01-02T03:04:05.678Z weft-cni verb=DEL pod=- container=c ifname=eth0 ms=12.0 ok\n", 12},
		{"", 0},
		{"something else ms=9\n", 0},
	}
	for _, tt := range tests {
		w := newWatch()
		w.stderr.WriteString(tt.stderr)
		if got := w.plugin(); got != tt.want {
			t.Errorf("%q: %v ms, want %v", tt.stderr, got, tt.want)
		}
	}
}

// The agent's log decides which call took how long; other lines are kept for
// the error message of an agent that died.
func TestAgentLog(t *testing.T) {
	a := &agent{calls: map[string]float64{}}
	a.read(strings.NewReader(`{"level":"INFO","msg":"agent ready"}
{"level":"INFO","msg":"call served","verb":"ADD","container":"abc","ms":1.25}
{"level":"ERROR","msg":"boom"}
`))
	if got, err := a.took("ADD", "abc"); err != nil || got != 1.25 {
		t.Errorf("ADD abc took %v, %v; want 1.25", got, err)
	}
	if !strings.Contains(a.lastLine(), "boom") {
		t.Errorf("last line is %q", a.lastLine())
	}
}

// fakeResults has every contender with the same rounds: thick twice as fast as
// ptp, everybody else as fast.
func fakeResults() results {
	r := results{
		Extent: extentOf(false), Began: time.Unix(1_700_000_000, 0), CNISize: 4, Memory: memory{RSS: 31, PSS: 20},
		Main: run{Adds: map[string][]sample{}, Dels: map[string][]sample{}},
		Masq: run{Adds: map[string][]sample{}, Dels: map[string][]sample{}},
	}
	for _, c := range r.calls() {
		m := sample{Total: 10, Exec: 9, Plugin: 5, Agent: 2, Settled: 30}
		if c.Contender == thick {
			m.Total = 5
		}
		into := r.Main
		if strings.HasSuffix(c.Contender, "_masq") {
			into = r.Masq
		}
		into.Adds[c.Contender] = []sample{m, m, m}
		into.Dels[c.Contender] = []sample{m, m, m}
	}
	r.Bursts = map[string][]rates{
		thick: {{Add: 400, DelReturned: 900, DelSettled: 200}}, thin: {{Add: 200, DelReturned: 100, DelSettled: 100}},
		ptp: {{Add: 100, DelReturned: 100, DelSettled: 100}},
	}
	r.Peers = manyPeers{
		Cold: []float64{2, 1, 3}, Noop: []float64{30, 40, 50},
		Events: map[string][]float64{moved: {1, 1}, left: {2}, arrived: {9}},
		Memory: residence{Settled: memory{RSS: 50, PSS: 49}, Later: memory{RSS: 61, PSS: 48}, Peak: 70},
	}
	r.Traffic = traffic{Weft: map[string][]float64{}, Handmade: map[string][]float64{}, MTU: 1450, Tracked: 12}
	for _, name := range trafficNames {
		r.Traffic.Weft[name], r.Traffic.Handmade[name] = []float64{9e9, 9e9}, []float64{10e9, 10e9}
	}
	r.Parts = []*part{{Name: "start_nothing", What: "execute nothing", took: []float64{1.5}}}
	return r
}

func TestLinesHaveEveryTargetOnce(t *testing.T) {
	var out bytes.Buffer
	fakeResults().writeLines(&out)
	for _, tt := range targets {
		if n := strings.Count(out.String(), "bench "+tt.Name+" "); n != 1 {
			t.Errorf("%d lines for %s, want 1", n, tt.Name)
		}
	}
	for _, want := range []string{
		"bench cni_add_p50_thick_vs_ptp 0.5 ratio\n",
		"bench cni_add_rate_burst_thick_vs_ptp 4 ratio\n",
		"bench cni_del_rate_burst_thick_vs_ptp 2 ratio\n", // the slower way to count
		"bench cni_del_rate_burst_returned_thick_vs_ptp 9 ratio\n",
		"bench cni_add_p50_ptp 10 ms\n",
		"bench part_add_thick_shim 3 ms\n",
		"bench part_start_nothing 1.5 ms\n",
		"target agent_rss_250_pods_mib ≤ 30: 31, not reached\n",
		"target weft_cni_size_mib ≤ 5: 4, reached\n",
		"bench peers_5000_cold_s 2 s\n",
		"bench peer_event_p50_ms 1.5 ms\n",
		"bench peer_arrived_p99_ms 9 ms\n",
		"bench agent_rss_5000_peers_mib 61 MiB\n", // the larger one
		"bench agent_pss_5000_peers_mib 49 MiB\n",
		"bench resync_5000_noop_ms 40 ms\n",
		"bench vxlan_stream_vs_handmade 0.9 ratio\n",
		"bench vxlan_stream_weft 9 Gbit/s\n",
		"target native_rr_vs_handmade ≥ 0.95: 0.9, not reached\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "NaN") {
		t.Errorf("something was not measured:\n%s", out.String())
	}
}

// The first lines are those of the targets, in order: the page relies on it.
func TestLinesBeginWithTargets(t *testing.T) {
	for i, l := range fakeResults().lines()[:len(targets)] {
		if l.Name != targets[i].Name {
			t.Errorf("line %d is %s, want %s", i, l.Name, targets[i].Name)
		}
	}
}

// The stages of a call add up to the call.
func TestStagesAddUp(t *testing.T) {
	sums := map[string]float64{}
	for _, s := range fakeResults().stages() {
		verb, rest, _ := strings.Cut(s.Name, "_")
		who, _, _ := strings.Cut(rest, "_")
		sums[verb+" "+who] += s.P50
	}
	want := map[string]float64{"add thick": 5, "del thick": 5, "add thin": 10, "del thin": 10}
	if fmt.Sprint(sums) != fmt.Sprint(want) {
		t.Errorf("sums %v, want %v", sums, want)
	}
}

func TestPage(t *testing.T) {
	var page bytes.Buffer
	fakeResults().writePage(&page)
	for _, want := range []string{
		"2023-11-14", "| `cni_add_p50_thick_vs_ptp` | ≤ 0.33 | 0.5 |  | not reached |",
		"| `peers_5000_cold_s` | ≤ 5 | 2 | 1 to 3 | reached |", "in turns, over IPv4 with an MTU of 1450", "tracking (12 entries",
		"| DEL | ptp | 10.00 | 10.00 to 10.00 | 10.00 | 30.00 |", "| thick | 400 | 200 | 900 |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("missing %q in\n%s", want, page.String())
		}
	}
	if strings.Contains(page.String(), "NaN") || strings.Contains(page.String(), "%!") {
		t.Errorf("page is broken:\n%s", page.String())
	}
}
