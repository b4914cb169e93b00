// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// writePage writes the results as Markdown.
func (r results) writePage(w io.Writer) {
	fmt.Fprintf(w, "# Benchmarks\n\nWritten by `make bench REPORT=1`; do not edit.\n\n")
	if r.Extent.Quick {
		fmt.Fprintf(w, "**A quick run: too few rounds for numbers to rely on.**\n\n")
	}
	fmt.Fprintf(w, "%s. %s. The run took %s.\n\n", r.Began.UTC().Format(time.DateOnly), machine(), r.Took.Round(time.Second))
	r.writeMethod(w)
	r.writeNodesMethod(w)
	r.writeTargets(w)
	r.writeCalls(w)
	r.writeBursts(w)
	r.writeParts(w)
}

// machine describes what matters for the numbers, and does not name it.
func machine() string {
	var uts unix.Utsname
	release := "unknown"
	if unix.Uname(&uts) == nil {
		// What follows the numbers is the name of somebody's build.
		release, _, _ = strings.Cut(unix.ByteSliceToString(uts.Release[:]), "-")
	}
	return fmt.Sprintf("%d cores (%s, %s), Linux %s, %s", runtime.NumCPU(), cpuModel(), runtime.GOARCH, release, runtime.Version())
}

func cpuModel() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for l := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func (r results) writeMethod(w io.Writer) {
	fmt.Fprintf(w, `## Method

Every call goes through libcni to the real binaries, as a container runtime
makes it, inside a network namespace that plays the host; sandboxes are made
beforehand, and every network has one pod that stays. All contenders take turns
in one run: in each of %d rounds every one does one ADD and one DEL, in an order
that is shuffled anew, each after a rest of 20 ms. A turn ends when nothing is left to
be done in the background. Ratios are
of medians; the interval is the 95 %% one of a bootstrap over rounds.

Compared with each other are only configurations of the same families, routes
and masquerade setting: IPv4, a /20, a default route; without masquerade unless
the name says "masq" (%d rounds). All state is in memory (tmpfs).

- **thick**: weft-cni with its agent. Its DEL returns once the release is
  recorded; interface and address follow in one batch. **thin**: weft-cni alone.
- **ptp**, **bridge**: the reference plugins with host-local.
- **floor**: the bare netlink work of one attachment in the measuring process,
  through sockets that are open already. No plugin can be faster.
- **_4000**: 4,000 of the pool's addresses are in use before the first round,
  by attachments written to the journal as ADD writes them, without interfaces.
- **burst**: %d pods, %d calls at a time, %d times in turns. DEL counts until the
  last interface is gone and the last address is free; "returned" until the
  last call returned.
- **memory**: of the agent that has served everything before, with %d pods.

`, r.Extent.Rounds, r.Extent.MasqRounds, burstPods, burstConcurrency, r.Extent.Bursts, residentPods)
}

func (r results) writeNodesMethod(w io.Writer) {
	fmt.Fprintf(w, `Between nodes:

- **peers_5000_cold**: from the start of a `+"`weft agent`"+` in an empty network namespace
  until `+"`weft status --wait`"+` returns, %d times; then the kernel is read, and has to have
  two routes, two neighbours and one FDB entry for each of %d peers, which all
  are on other segments. The registry is a directory of manifests in memory.
  The interval goes from the fastest start to the slowest.
- **peer_event**: %d changes of one manifest, one at a time, from before the
  rename(2) or unlink(2) to the kernel's last notification of what follows.
  moved: a node address changes; left, arrived: a lease goes, and comes.
- **agent_rss_5000_peers**: the larger of two values, %s after the start and %s
  after the events; peak: the most at any time before.
- **resync_5000_noop**: passes over what the agent left behind, by its drivers in
  this process, %d times: every kind of object is read from the kernel and compared.
- **_vs_handmade**: pods on different nodes of `+"`weft lab`"+`, beside the same wired with `+"`ip`"+`
  (test/bench/handmade.sh): %d rounds of %s each, in turns, over IPv4 with an MTU of %d. stream:
  iperf3, one TCP connection; rr: one byte over TCP and back. Sender and receiver have
  a core each. Weft's nodes have nftables and connection tracking (%d entries at
  the end), the others neither.

`, r.Extent.Colds, peerCount, len(r.Peers.events()), settleTime, settleTime, len(r.Peers.Noop),
		r.Extent.TrafficRounds, r.Extent.TrafficRun, r.Traffic.MTU, r.Traffic.Tracked)
}

func (r results) writeTargets(w io.Writer) {
	fmt.Fprintf(w, "## Targets\n\n| name | target | measured | 95 %% interval | |\n|---|---|---|---|---|\n")
	all := r.lines()
	for _, t := range targets {
		for _, l := range all {
			if l.Name == t.Name {
				fmt.Fprintf(w, "| `%s` | %s | %.3g | %s | %s |\n", t.Name, t, l.Value, l.interval(), t.verdict(l.Value))
			}
		}
	}
	fmt.Fprintf(w, "\nBeside them:\n\n| name | measured | 95 %% interval |\n|---|---|---|\n")
	for _, l := range all[len(targets):] {
		fmt.Fprintf(w, "| `%s` | %.3g %s | %s |\n", l.Name, l.Value, strings.TrimPrefix(l.Unit, "ratio"), l.interval())
	}
}

// interval returns "0.1 to 0.2", or nothing where there is no spread.
func (e estimate) interval() string {
	if e.Low == e.High {
		return ""
	}
	return fmt.Sprintf("%.3g to %.3g", e.Low, e.High)
}

func (r results) writeCalls(w io.Writer) {
	fmt.Fprintf(w, "\n## Calls, in milliseconds\n\nWith this number of rounds p99 is next to the slowest call.\n\n| | contender | median | quartiles | p99 | interface gone, address free |\n|---|---|---|---|---|---|\n")
	for _, c := range r.calls() {
		s := summarize(of(c.Samples, total))
		gone := ""
		if c.Verb == "DEL" && !strings.HasSuffix(c.Contender, "_4000") {
			gone = fmt.Sprintf("%.2f", median(of(c.Samples, settled)))
		}
		fmt.Fprintf(w, "| %s | %s | %.2f | %.2f to %.2f | %.2f | %s |\n", c.Verb, c.Contender, s.P50, s.P25, s.P75, s.P99, gone)
	}
}

func (r results) writeBursts(w io.Writer) {
	fmt.Fprintf(w, "\n## Bursts, in calls per second\n\n| contender | ADD | DEL | DEL returned |\n|---|---|---|---|\n")
	for _, name := range []string{thick, thin, ptp} {
		all := r.Bursts[name]
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f |\n", name,
			median(ratesOf(all, func(m rates) float64 { return m.Add })),
			median(ratesOf(all, func(m rates) float64 { return m.DelSettled })),
			median(ratesOf(all, func(m rates) float64 { return m.DelReturned })))
	}
}

func (r results) writeParts(w io.Writer) {
	fmt.Fprintf(w, "\n## Where the milliseconds are\n\nMeasured in the calls above, from the outside in; the parts of a call add up to it:\n\n| part of the call | median | quartiles |\n|---|---|---|\n")
	for _, s := range r.stages() {
		fmt.Fprintf(w, "| %s | %.2f | %.2f to %.2f |\n", s.What, s.P50, s.P25, s.P75)
	}
	fmt.Fprintf(w, "\nMeasured by themselves:\n\n| what | median | quartiles |\n|---|---|---|\n")
	for _, p := range r.Parts {
		s := summarize(p.took)
		fmt.Fprintf(w, "| %s | %.2f | %.2f to %.2f |\n", p.What, s.P50, s.P25, s.P75)
	}
}
