// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// line is one result: "bench NAME VALUE UNIT".
type line struct {
	Name string
	estimate
	Unit string
}

// target is what a result is to reach.
type target struct {
	Name    string
	AtLeast bool // otherwise: at most
	Bound   float64
}

// targets in the order in which they are reported.
var targets = []target{
	{Name: "cni_add_p50_thick_vs_ptp", Bound: 0.33},
	{Name: "cni_add_p50_thin_vs_ptp", Bound: 0.40},
	{Name: "cni_del_p50_thick_vs_ptp", Bound: 0.25},
	{Name: "cni_del_p50_thin_vs_ptp", Bound: 0.90},
	{Name: "cni_add_rate_burst_thick_vs_ptp", AtLeast: true, Bound: 3},
	{Name: "cni_del_rate_burst_thick_vs_ptp", AtLeast: true, Bound: 3},
	{Name: "cni_add_p50_thick_at_4000_used_vs_empty", Bound: 1.2},
	{Name: "cni_add_p50_thin_at_4000_used_vs_empty", Bound: 1.5},
	{Name: "weft_cni_size_mib", Bound: 5},
	{Name: "agent_rss_250_pods_mib", Bound: 30},

	{Name: "peers_5000_cold_s", Bound: 5},
	{Name: "peer_event_p99_ms", Bound: 10},
	{Name: "agent_rss_5000_peers_mib", Bound: 60},
	{Name: "resync_5000_noop_ms", Bound: 150},
	{Name: "vxlan_stream_vs_handmade", AtLeast: true, Bound: 0.95},
	{Name: "native_stream_vs_handmade", AtLeast: true, Bound: 0.95},
	{Name: "vxlan_rr_vs_handmade", AtLeast: true, Bound: 0.95},
	{Name: "native_rr_vs_handmade", AtLeast: true, Bound: 0.95},
}

// String returns the bound as people write it.
func (t target) String() string {
	if t.AtLeast {
		return fmt.Sprintf("≥ %.4g", t.Bound)
	}
	return fmt.Sprintf("≤ %.4g", t.Bound)
}

// reached judges by the value alone; the interval is for the reader.
func (t target) reached(v float64) bool {
	if t.AtLeast {
		return v >= t.Bound
	}
	return v <= t.Bound
}

func (t target) verdict(v float64) string {
	if t.reached(v) {
		return "reached"
	}
	return "not reached"
}

// lines returns the results that have targets, in their order, and then those
// that complete the picture.
func (r results) lines() []line {
	targeted, more := r.attachmentLines()
	peers, morePeers := r.Peers.lines()
	return slices.Concat(targeted, peers, r.Traffic.ratios(), more, morePeers, r.Traffic.rates())
}

// attachmentLines returns those of ADD and DEL.
func (r results) attachmentLines() (targeted, more []line) {
	add := func(a, b string) estimate {
		return ratioOfMedians(of(r.Main.Adds[a], total), of(r.Main.Adds[b], total))
	}
	del := func(a, b string, quantity func(sample) float64) estimate {
		return ratioOfMedians(of(r.Main.Dels[a], quantity), of(r.Main.Dels[b], quantity))
	}
	rate := func(who string, quantity func(rates) float64) estimate {
		return ratioOfMedians(ratesOf(r.Bursts[who], quantity), ratesOf(r.Bursts[ptp], quantity))
	}
	masq := func(who string, runs map[string][]sample) estimate {
		return ratioOfMedians(of(runs[who], total), of(runs[ptpMasq], total))
	}
	addRate := func(m rates) float64 { return m.Add }
	returned := func(m rates) float64 { return m.DelReturned }
	done := func(m rates) float64 { return m.DelSettled }
	targeted = []line{
		{"cni_add_p50_thick_vs_ptp", add(thick, ptp), "ratio"},
		{"cni_add_p50_thin_vs_ptp", add(thin, ptp), "ratio"},
		{"cni_del_p50_thick_vs_ptp", del(thick, ptp, total), "ratio"},
		{"cni_del_p50_thin_vs_ptp", del(thin, ptp, total), "ratio"},
		{"cni_add_rate_burst_thick_vs_ptp", rate(thick, addRate), "ratio"},
		// The slower of the two ways to count, whatever it says.
		{"cni_del_rate_burst_thick_vs_ptp", rate(thick, done), "ratio"},
		{"cni_add_p50_thick_at_4000_used_vs_empty", add(thick4000, thick), "ratio"},
		{"cni_add_p50_thin_at_4000_used_vs_empty", add(thin4000, thin), "ratio"},
		{"weft_cni_size_mib", exact(r.CNISize), "MiB"},
		{"agent_rss_250_pods_mib", exact(r.Memory.RSS), "MiB"},
	}
	return targeted, []line{
		{"agent_pss_250_pods_mib", exact(r.Memory.PSS), "MiB"},
		{"cni_del_rate_burst_returned_thick_vs_ptp", rate(thick, returned), "ratio"},
		{"cni_del_settled_p50_thick_vs_ptp", del(thick, ptp, settled), "ratio"},
		{"cni_add_rate_burst_thin_vs_ptp", rate(thin, addRate), "ratio"},
		{"cni_del_rate_burst_thin_vs_ptp", rate(thin, done), "ratio"},
		{"cni_add_p50_thick_vs_bridge", add(thick, bridge), "ratio"},
		{"cni_del_p50_thick_vs_bridge", del(thick, bridge, total), "ratio"},
		{"cni_add_p50_thick_vs_floor", add(thick, floor), "ratio"},
		{"cni_add_p50_thin_vs_floor", add(thin, floor), "ratio"},
		{"cni_add_p50_thick_masq_vs_ptp_masq", masq(thickMasq, r.Masq.Adds), "ratio"},
		{"cni_add_p50_thin_masq_vs_ptp_masq", masq(thinMasq, r.Masq.Adds), "ratio"},
		{"cni_del_p50_thick_masq_vs_ptp_masq", masq(thickMasq, r.Masq.Dels), "ratio"},
		{"cni_del_p50_thin_masq_vs_ptp_masq", masq(thinMasq, r.Masq.Dels), "ratio"},
	}
}

// writeLines prints every result, and a verdict per target.
func (r results) writeLines(w io.Writer) {
	values := map[string]float64{}
	for _, l := range r.lines() {
		values[l.Name] = l.Value
		printLine(w, l.Name, l.Value, l.Unit)
	}
	for _, c := range r.calls() {
		name := "cni_" + strings.ToLower(c.Verb) + "_%s_" + c.Contender
		s := summarize(of(c.Samples, total))
		printLine(w, fmt.Sprintf(name, "p50"), s.P50, "ms")
		printLine(w, fmt.Sprintf(name, "p99"), s.P99, "ms")
	}
	for _, name := range []string{thick, thin, ptp} {
		all := r.Bursts[name]
		printLine(w, "cni_add_rate_burst_"+name, median(ratesOf(all, func(m rates) float64 { return m.Add })), "1/s")
		printLine(w, "cni_del_rate_burst_"+name, median(ratesOf(all, func(m rates) float64 { return m.DelSettled })), "1/s")
		printLine(w, "cni_del_rate_burst_returned_"+name, median(ratesOf(all, func(m rates) float64 { return m.DelReturned })), "1/s")
	}
	for _, s := range r.stages() {
		printLine(w, "part_"+s.Name, s.P50, "ms")
	}
	for _, p := range r.Parts {
		printLine(w, "part_"+p.Name, median(p.took), "ms")
	}
	for _, t := range targets {
		fmt.Fprintf(w, "target %s %s: %.3g, %s\n", t.Name, t, values[t.Name], t.verdict(values[t.Name]))
	}
}

func printLine(w io.Writer, name string, value float64, unit string) {
	fmt.Fprintf(w, "bench %s %.4g %s\n", name, value, unit)
}

// calls is one verb of one contender.
type calls struct {
	Contender, Verb string
	Samples         []sample
}

// calls returns all of them in the order of the report.
func (r results) calls() []calls {
	var all []calls
	for _, verb := range []string{"ADD", "DEL"} {
		for _, name := range []string{thick, thin, ptp, bridge, floor, thick4000, thin4000, thickMasq, thinMasq, ptpMasq, bridgeMasq} {
			m, q := r.Main.Adds, r.Masq.Adds
			if verb == "DEL" {
				m, q = r.Main.Dels, r.Masq.Dels
			}
			samples := m[name]
			if samples == nil {
				samples = q[name]
			}
			all = append(all, calls{Contender: name, Verb: verb, Samples: samples})
		}
	}
	return all
}

// stage is a part of a call that was measured while it was made.
type stage struct {
	Name, What string
	summary
}

// stages takes ADD and DEL of thick and thin apart, from the outside in.
func (r results) stages() []stage {
	var all []stage
	for _, c := range r.calls() {
		if c.Contender != thick && c.Contender != thin {
			continue
		}
		prefix := strings.ToLower(c.Verb) + "_" + c.Contender + "_"
		enter := func(name, what string, quantity func(sample) float64) {
			all = append(all, stage{prefix + name, c.Verb + ", " + c.Contender + ": " + what, summarize(of(c.Samples, quantity))})
		}
		enter("libcni", "libcni: its own work and the result cache", func(m sample) float64 { return m.Total - m.Exec })
		enter("process", "fork, exec, start and end of the process", func(m sample) float64 { return m.Exec - m.Plugin })
		if c.Contender == thin {
			enter("plugin", "in weft-cni: configuration, journal, kernel, result", func(m sample) float64 { return m.Plugin })
			continue
		}
		enter("shim", "in weft-cni: configuration, namespace, socket", func(m sample) float64 { return m.Plugin - m.Agent })
		enter("agent", "in the agent: configuration, journal, kernel, result", func(m sample) float64 { return m.Agent })
	}
	return all
}
