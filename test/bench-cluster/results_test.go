// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write golden files")

func TestQuantile(t *testing.T) {
	samples := []float64{4, 1, 3, 2}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.5, 2.5}, {1, 4}, {0.99, 3.97}} {
		if got := quantile(samples, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile %v: found %v; want %v", c.q, got, c.want)
		}
	}
	if samples[0] != 4 {
		t.Error("the samples have changed")
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: found %v; want NaN", got)
	}
}

func TestRatios(t *testing.T) {
	a := []round{{Network: 1}, {Network: 4}, {Network: 3}}
	b := []round{{Network: 2}, {Network: 4}, {Network: 2}}
	if got, want := ratios(a, b, network), (estimate{1, 0.5, 1.5}); got != want {
		t.Errorf("found %v; want %v", got, want)
	}
	if got := exact(2).spread(); got != "" {
		t.Errorf("found %q; want no spread", got)
	}
}

// some are results that reach some targets and miss others.
func some() results {
	return results{
		Extent: extentOf(false), Began: time.Unix(1_700_000_000, 0), Took: 9 * time.Minute, Load: 0.1,
		Weft: []round{
			{Pods: 60, Ready: []float64{2, 4}, Stamped: []float64{2, 4}, Network: 50, SetUp: 30, TearDown: 20, Gone: 5, Requests: requests{"get pods": 3}},
			{Pods: 60, Ready: []float64{2, 5}, Stamped: []float64{2, 5}, Network: 60, SetUp: 40, TearDown: 25, Gone: 6, Requests: requests{"get pods": 6, "create events": 3}},
		},
		Reference: []round{
			{Pods: 60, Ready: []float64{3, 4}, Stamped: []float64{3, 4}, Network: 100, SetUp: 80, TearDown: 60, Gone: 8, Requests: requests{}},
			{Pods: 60, Ready: []float64{3, 4}, Stamped: []float64{3, 4}, Network: 110, SetUp: 90, TearDown: 65, Gone: 9, Requests: requests{}},
		},
		Memory: memory{
			Resident: footprint{40, 39, 41}, Crowded: footprint{50, 49, 60}, Restarted: footprint{81, 80, 90},
			Pods: 10_113, Leases: 100,
		},
	}
}

func TestVerdicts(t *testing.T) {
	var out bytes.Buffer
	some().writeLines(&out)
	for _, want := range []string{
		"bench sandbox_network_ptp 105 ms\n",
		"target sandbox_network_vs_ptp ≤ 1: 0.523, reached\n",
		"target pod_ready_p50_vs_ptp ≤ 1: 0.929, reached\n",
		"target pod_ready_p99_vs_ptp ≤ 1: 1.12, not reached\n",
		"target api_requests_per_pod ≤ 1: 0.15, reached\n",
		"target api_requests_per_pod_warm ≤ 0: 0.05, not reached\n",
		"target agent_rss_mib ≤ 80: 81, not reached\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// Every target is a result, and in its place.
func TestTargetsAreMeasured(t *testing.T) {
	lines := some().lines()
	for i, target := range targets {
		if lines[i].Name != target.Name {
			t.Errorf("result %d is %s; want that of target %s", i, lines[i].Name, target.Name)
		}
	}
}

func TestPage(t *testing.T) {
	var page bytes.Buffer
	some().writePage(&page)
	got := regexp.MustCompile(`\d+ cores \(.*\), Linux [^,]*, go\S+\. `).ReplaceAll(page.Bytes(), []byte("MACHINE. "))
	const golden = "testdata/page.md"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the page differs from %s (-update writes it):\n%s", golden, got)
	}
}
