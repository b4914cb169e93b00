// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"flag"
	"os"
	"testing"
	"time"
)

var (
	seed   = flag.Uint64("seed", 0, "run this seed only")
	nodes  = flag.Int("nodes", 200, "how many nodes join at the start")
	whole  = flag.String("whole", "", "file for the whole log, of the last seed that runs")
	events = flag.Int("events", 40_000, "how many events happen before the faults end")
)

// run runs a World and says how to do it again if a rule was broken.
func run(t *testing.T, o Options) Result {
	t.Helper()
	if *whole != "" {
		f, err := os.Create(*whole)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		buffered := bufio.NewWriter(f)
		defer buffered.Flush()
		o.Log = buffered
	}
	began := time.Now()
	r, err := Run(o)
	if err != nil {
		t.Fatalf("seed %d: %v\nagain: go test ./test/sim -run '^%s$' -seed %d -nodes %d -events %d",
			o.Seed, err, t.Name(), o.Seed, *nodes, *events)
	}
	t.Logf("seed %d, log %s: %d events, %s in virtual time (%s in real time), %d nodes crashed and %d removed; at the end %d nodes, %d leases, at rest after %s",
		o.Seed, r.Hash, r.Events, r.Virtual.Round(time.Second), time.Since(began).Round(10*time.Millisecond),
		r.Crashes, r.Removed, r.Nodes, r.Leases, r.Rest.Round(100*time.Millisecond))
	return r
}

// seeds are those that a test runs: what the flag says, or the first n.
func seeds(n int) []uint64 {
	if *seed != 0 {
		return []uint64{*seed}
	}
	var list []uint64
	for i := range n {
		list = append(list, uint64(i+1))
	}
	return list
}

// Whatever goes wrong, and whenever, no rule is broken, and when nothing goes
// wrong any more, everybody reaches everybody. Every second pool is a tight one.
func TestSimulation(t *testing.T) {
	sum := 0
	for _, s := range seeds(3) {
		sum += run(t, Options{Seed: s, Nodes: *nodes, Events: *events, Tight: s%2 == 0}).Events
	}
	t.Logf("%d events", sum)
}

// With few nodes the same number of events is a long time, in which more goes
// wrong with each of them.
func TestLongLife(t *testing.T) {
	for _, s := range seeds(2) {
		run(t, Options{Seed: s, Nodes: *nodes / 8, Events: *events, Tight: true})
	}
}

// Two clusters' worth of nodes join at the same instant.
func TestAllJoinAtOnce(t *testing.T) {
	for _, s := range seeds(1) {
		run(t, Options{Seed: s, Nodes: 2 * *nodes, Events: *events, AtOnce: true, Tight: true})
	}
}

// A seed is a run: to the last line of the log, and another seed is another.
func TestReplay(t *testing.T) {
	o := Options{Seed: 1, Nodes: 30, Events: 10_000, Tight: true}
	first, again := run(t, o), run(t, o)
	if first != again {
		t.Errorf("seed %d gives %+v and then %+v", o.Seed, first, again)
	}
	o.Seed = 2
	if other := run(t, o); other.Hash == first.Hash {
		t.Errorf("seeds 1 and 2 both give log %s", first.Hash)
	}
}
