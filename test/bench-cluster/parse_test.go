// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"
)

// What containerd writes, cut down to what matters.
const containerdMetrics = `# HELP containerd_cri_network_plugin_operations_duration_seconds_seconds latency in seconds
# TYPE containerd_cri_network_plugin_operations_duration_seconds_seconds histogram
containerd_cri_network_plugin_operations_duration_seconds_seconds_bucket{operation_type="set_up_pod",le="0.5"} 3
containerd_cri_network_plugin_operations_duration_seconds_seconds_bucket{operation_type="set_up_pod",le="+Inf"} 4
containerd_cri_network_plugin_operations_duration_seconds_seconds_sum{operation_type="set_up_pod"} 2
containerd_cri_network_plugin_operations_duration_seconds_seconds_count{operation_type="set_up_pod"} 4
containerd_cri_network_plugin_operations_duration_seconds_seconds_bucket{operation_type="tear_down_pod",le="+Inf"} 5
containerd_cri_network_plugin_operations_duration_seconds_seconds_sum{operation_type="tear_down_pod"} 1
containerd_cri_network_plugin_operations_duration_seconds_seconds_count{operation_type="tear_down_pod"} 5
# TYPE containerd_cri_network_plugin_operations_errors_total counter
containerd_cri_network_plugin_operations_errors_total{operation_type="set_up_pod"} 1
# TYPE containerd_cri_sandbox_create_network_seconds histogram
containerd_cri_sandbox_create_network_seconds_bucket{le="+Inf"} 4
containerd_cri_sandbox_create_network_seconds_sum 3
containerd_cri_sandbox_create_network_seconds_count 4
`

func TestParseRuntime(t *testing.T) {
	got, err := parseRuntime(containerdMetrics)
	want := runtimeTimes{Network: timer{3, 4}, SetUp: timer{2, 4}, TearDown: timer{1, 5}, Errors: 1}
	if err != nil || got != want {
		t.Errorf("found %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "404 page not found"} {
		if got, err := parseRuntime(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

func TestSince(t *testing.T) {
	now := runtimeTimes{Network: timer{3, 4}, SetUp: timer{2, 4}, TearDown: timer{1, 5}, Errors: 1}
	for _, c := range []struct {
		name              string
		before            runtimeTimes
		pods              int
		network, up, down float64
		wrong             string
	}{
		{name: "from the beginning", before: runtimeTimes{Errors: 1}, pods: 4, network: 750, up: 500, down: 200},
		{name: "later", before: runtimeTimes{Network: timer{1, 2}, SetUp: timer{1, 2}, TearDown: timer{0.4, 2}, Errors: 1}, pods: 2, network: 1000, up: 500, down: 200},
		{name: "an error", before: runtimeTimes{}, pods: 4, wrong: "1 calls of the plugins failed"},
		{name: "too few", before: runtimeTimes{Errors: 1}, pods: 5, wrong: "expected 5 times"},
		{name: "one more", before: runtimeTimes{Errors: 1}, pods: 3, wrong: "expected 3 times"},
	} {
		network, up, down, err := now.since(c.before, c.pods)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: found error %v; want one with %q", c.name, err, c.wrong)
			}
			continue
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
		if err != nil || !near(network, c.network) || !near(up, c.up) || !near(down, c.down) {
			t.Errorf("%s: found %v, %v, %v, %v; want %v, %v, %v", c.name, network, up, down, err, c.network, c.up, c.down)
		}
	}
}

const auditLog = `{"kind":"Event","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/bench/pods/p","verb":"get","objectRef":{"resource":"pods","namespace":"bench","name":"p"}}
{"kind":"Event","level":"Metadata","auditID":"2","stage":"ResponseStarted","requestURI":"/api/v1/pods?watch=1","verb":"watch","objectRef":{"resource":"pods"}}
{"kind":"Event","level":"Metadata","auditID":"3","stage":"ResponseComplete","requestURI":"/api/v1/nodes/n/status","verb":"patch","objectRef":{"resource":"nodes","name":"n","subresource":"status"}}
{"kind":"Event","level":"Metadata","auditID":"4","stage":"ResponseComplete","requestURI":"/version?timeout=1s","verb":"get"}
{"kind":"Event","level":"Metadata","auditID":"5","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/bench/pods/q","verb":"get","objectRef":{"resource":"pods"}}
`

func TestCountRequests(t *testing.T) {
	before, err := countRequests([]byte(auditLog))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := before.String(), "2 get pods, 1 get /version, 1 patch nodes/status"; !sameParts(got, want) {
		t.Errorf("found %q; want %q", got, want)
	}
	// A line that is being written is not there yet.
	now, err := countRequests([]byte(auditLog + strings.SplitAfter(auditLog, "\n")[0] + `{"kind":"Ev`))
	if err != nil {
		t.Fatal(err)
	}
	if added := now.since(before); added.String() != "1 get pods" || added.total() != 1 {
		t.Errorf("found %q added; want 1 get pods", added)
	}
	if none := before.since(before); none.String() != "none" || none.total() != 0 {
		t.Errorf("found %q added; want none", none)
	}
	if r, err := countRequests([]byte("{\n")); err == nil {
		t.Errorf("half an object is read as %v", r)
	}
}

func sameParts(a, b string) bool {
	parts := map[string]int{}
	for _, p := range strings.Split(a, ", ") {
		parts[p]++
	}
	for _, p := range strings.Split(b, ", ") {
		parts[p]--
	}
	for _, n := range parts {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestParseFootprint(t *testing.T) {
	const one = "VmHWM:\t   40960 kB\nVmRSS:\t   20480 kB\nPss:               10240 kB\n"
	got, err := parseFootprint(one)
	if want := (footprint{RSS: 20, PSS: 10, Peak: 40}); err != nil || got != want {
		t.Errorf("found %+v, %v; want %+v", got, err, want)
	}
	for name, text := range map[string]string{
		"no agent": "", "two agents": one + one, "no Pss": "VmHWM: 1 kB\nVmRSS: 1 kB\n", "no unit": "VmRSS: 1\n", "no number": "VmRSS: x kB\n",
	} {
		if got, err := parseFootprint(text); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}
