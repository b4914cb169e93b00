// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// writePage writes the results as Markdown.
func (r results) writePage(w io.Writer) {
	fmt.Fprintf(w, "# Benchmarks on a cluster\n\nWritten by `make bench-cluster REPORT=1`; do not edit.\n\n")
	if r.Extent.Quick {
		fmt.Fprintf(w, "**A quick run: too little for numbers to rely on.**\n\n")
	}
	if r.Load > busy {
		fmt.Fprintf(w, "**The machine was in use by others: numbers to see trends in, no more.**\n\n")
	}
	fmt.Fprintf(w, "%s. %s. Load average before the run: %.2f. The run took %s.\n\n",
		r.Began.UTC().Format(time.DateOnly), machine(), r.Load, r.Took.Round(time.Second))
	r.writeMethod(w)
	r.writeTable(w)
	r.writeRounds(w)
}

func (r results) writeMethod(w io.Writer) {
	x := r.Extent
	fmt.Fprintf(w, `## Method

Two clusters run at the same time on this machine, both the same: API server, etcd,
controllers, and one node with containerd, runc, kubelet and kube-proxy. One has Weft, from
deploy/weft.yaml; **ptp** has the reference plugins ptp and host-local. Both masquerade by one
rule for the node, not by rules for each pod. Weft's state is in memory, as /run is on a node,
that of host-local on disk, where it is by default.
In each of %d rounds each of them, in turns, starts %d pods at once (one container, bound to
the node) and, when all are Ready, deletes them. A small round before the first one is not
counted. The value is the median over the rounds, followed by the least and the greatest; a
ratio is one of values of the same round.

- **sandbox_network**: %s,
  the mean over the pods: what RunPodSandbox does for the network, which is a network
  namespace, the loopback device and the plugins. **plugins_add**, **plugins_del**:
  containerd_cri_network_plugin_operations_duration_seconds, the plugins alone.
- **pod_ready**: from before the request that creates the pod until the watch brings the
  news that it is Ready, by the clock of the client; the quantiles are over the pods of a round.
  stamped: by the times in the object, which are whole seconds. **pods_gone**: from the request
  that deletes them until the last one is gone.
- **api_requests_per_pod**: of Weft's agent, by the API server's audit log, from the creation of
  the pods until all are gone, divided by the pods; the greatest of the rounds. Watches are not
  counted: they begin anew by the clock. warm: without those for a pod whose ADD came before
  the news of the pod.
- **agent_rss**: by /proc, the most of %d looks in %s. resident: with %d pods on the node, after
  the rounds. crowded: after %d nodes with a lease each and %s pods of theirs came (objects
  without machines). restarted: a new agent in the same cluster. peak: the most that it ever was.
  The target is for the greater of crowded and restarted.

For the first three targets the bound is the reference itself: 1 is as fast as ptp.

`, x.Rounds, x.Pods, networkMetric, settleLooks, settleTime, x.Resident, x.Nodes, thousands(x.Elsewhere))
}

func (r results) writeTable(w io.Writer) {
	fmt.Fprintf(w, "## Targets\n\n| name | target | measured | rounds | |\n|---|---|---|---|---|\n")
	all := r.lines()
	for i, t := range targets {
		l := all[i]
		fmt.Fprintf(w, "| `%s` | ≤ %.4g | %.3g | %s | %s |\n", t.Name, t.Bound, l.Value, l.spread(), t.verdict(l.Value))
	}
	fmt.Fprintf(w, "\nRequests of all rounds: %s.\n", r.requests())
	fmt.Fprintf(w, "\nBeside them:\n\n| name | measured | rounds |\n|---|---|---|\n")
	for _, l := range all[len(targets):] {
		fmt.Fprintf(w, "| `%s` | %.3g %s | %s |\n", l.Name, l.Value, strings.TrimPrefix(l.Unit, "ratio"), l.spread())
	}
	fmt.Fprintf(w, "\nWhen the memory was measured, the API had %s pods, and the agent used the leases of %d other nodes.\n\n",
		thousands(r.Memory.Pods), r.Memory.Leases)
}

func (r results) writeRounds(w io.Writer) {
	fmt.Fprintf(w, "## Rounds\n\n| round | | network, ms | plugins ADD, ms | plugins DEL, ms | Ready p50, s | p99, s | gone, s | requests |\n|---|---|---|---|---|---|---|---|---|\n")
	row := func(i int, name, requests string, one round) {
		fmt.Fprintf(w, "| %d | %s | %.1f | %.1f | %.1f | %.2f | %.2f | %.1f | %s |\n",
			i+1, name, one.Network, one.SetUp, one.TearDown, readyP50(one), readyP99(one), one.Gone, requests)
	}
	for i := range r.Weft {
		row(i, "weft", r.Weft[i].Requests.String(), r.Weft[i])
		row(i, "ptp", "", r.Reference[i])
	}
}

// thousands writes 10000 as 10,000.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
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

// busy is the load average above which others use the machine.
const busy = 1

// loadAverage is the machine's, over one minute; NaN if it is not known.
func loadAverage() float64 {
	load := math.NaN()
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		if _, err := fmt.Sscan(string(raw), &load); err != nil {
			return math.NaN()
		}
	}
	return load
}
