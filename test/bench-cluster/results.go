// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"time"
)

// results are everything that was measured.
type results struct {
	Extent extent
	Began  time.Time
	Took   time.Duration
	Load   float64 // average of the machine before the run

	Weft, Reference []round // in the same order
	Memory          memory
}

// line is one result: "bench NAME VALUE UNIT".
type line struct {
	Name string
	estimate
	Unit string
}

// target is the most that a result is to be.
type target struct {
	Name  string
	Bound float64
}

// targets in the order in which they are reported.
var targets = []target{
	{"sandbox_network_vs_ptp", 1},
	{"pod_ready_p50_vs_ptp", 1},
	{"pod_ready_p99_vs_ptp", 1},
	{"api_requests_per_pod", 1},
	{"api_requests_per_pod_warm", 0},
	{"agent_rss_mib", 80},
}

// verdict judges by the value alone; the spread is for the reader.
func (t target) verdict(v float64) string {
	if v <= t.Bound {
		return "reached"
	}
	return "not reached"
}

// Quantities of a round.
func network(r round) float64    { return r.Network }
func plugins(r round) float64    { return r.SetUp }
func teardown(r round) float64   { return r.TearDown }
func gone(r round) float64       { return r.Gone }
func readyP50(r round) float64   { return quantile(r.Ready, 0.5) }
func readyP99(r round) float64   { return quantile(r.Ready, 0.99) }
func stampedP50(r round) float64 { return quantile(r.Stamped, 0.5) }
func stampedP99(r round) float64 { return quantile(r.Stamped, 0.99) }
func asked(r round) float64      { return r.perPod(r.Requests.total()) }

// askedWarm leaves out what the agent has to ask because a pod's ADD was there
// before the news of the pod.
func askedWarm(r round) float64 {
	return r.perPod(r.Requests.total() - r.Requests["get pods"])
}

// lines returns the results that have targets, in their order, and then those
// that complete the picture.
func (r results) lines() []line {
	all := []line{
		{"sandbox_network_vs_ptp", ratios(r.Weft, r.Reference, network), "ratio"},
		{"pod_ready_p50_vs_ptp", ratios(r.Weft, r.Reference, readyP50), "ratio"},
		{"pod_ready_p99_vs_ptp", ratios(r.Weft, r.Reference, readyP99), "ratio"},
		{"api_requests_per_pod", worst(over(r.Weft, asked)), "requests"},
		{"api_requests_per_pod_warm", worst(over(r.Weft, askedWarm)), "requests"},
		{"agent_rss_mib", exact(r.Memory.most()), "MiB"},
		{"plugins_add_vs_ptp", ratios(r.Weft, r.Reference, plugins), "ratio"},
		{"plugins_del_vs_ptp", ratios(r.Weft, r.Reference, teardown), "ratio"},
		{"pods_gone_vs_ptp", ratios(r.Weft, r.Reference, gone), "ratio"},
	}
	for _, who := range []struct {
		name   string
		rounds []round
	}{{"weft", r.Weft}, {"ptp", r.Reference}} {
		all = append(all,
			line{"sandbox_network_" + who.name, over(who.rounds, network), "ms"},
			line{"plugins_add_" + who.name, over(who.rounds, plugins), "ms"},
			line{"plugins_del_" + who.name, over(who.rounds, teardown), "ms"},
			line{"pod_ready_p50_" + who.name, over(who.rounds, readyP50), "s"},
			line{"pod_ready_p99_" + who.name, over(who.rounds, readyP99), "s"},
			line{"pod_ready_p50_stamped_" + who.name, over(who.rounds, stampedP50), "s"},
			line{"pod_ready_p99_stamped_" + who.name, over(who.rounds, stampedP99), "s"},
			line{"pods_gone_" + who.name, over(who.rounds, gone), "s"},
		)
	}
	return append(all, r.Memory.lines()...)
}

func (m memory) lines() []line {
	var all []line
	for _, state := range []struct {
		name string
		footprint
	}{{"resident", m.Resident}, {"crowded", m.Crowded}, {"restarted", m.Restarted}} {
		all = append(all,
			line{"agent_rss_" + state.name, exact(state.RSS), "MiB"},
			line{"agent_pss_" + state.name, exact(state.PSS), "MiB"},
			line{"agent_peak_rss_" + state.name, exact(state.Peak), "MiB"},
		)
	}
	return all
}

// most is the greatest RSS in the large cluster.
func (m memory) most() float64 { return math.Max(m.Crowded.RSS, m.Restarted.RSS) }

// worst judges by the greatest round instead of the median.
func worst(e estimate) estimate { return estimate{e.High, e.Low, e.High} }

// requests of all rounds, by kind.
func (r results) requests() requests {
	all := requests{}
	for _, one := range r.Weft {
		for what, count := range one.Requests {
			all[what] += count
		}
	}
	return all
}

// writeLines prints every result, and a verdict per target.
func (r results) writeLines(w io.Writer) {
	values := map[string]float64{}
	for _, l := range r.lines() {
		values[l.Name] = l.Value
		fmt.Fprintf(w, "bench %s %.4g %s\n", l.Name, l.Value, l.Unit)
	}
	for _, t := range targets {
		fmt.Fprintf(w, "target %s ≤ %.4g: %.3g, %s\n", t.Name, t.Bound, values[t.Name], t.verdict(values[t.Name]))
	}
}
