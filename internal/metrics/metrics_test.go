// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"weft.dev/weft/internal/cni"
)

// full has something of everything.
var full = Snapshot{
	Ready: true,
	Pools: []Pool{
		{Pool: "default", Family: "ipv4", Size: 256, Used: 250, Cooling: 3, Foreign: 1},
		{Pool: "default", Family: "ipv6", Size: math.MaxUint64, Used: 250},
		{Family: "ipv4", Size: 254},
	},
	Attachments:    []Attachments{{"intent", 0}, {"complete", 250}, {"releasing", 2}},
	Leases:         Leases{Own: 2, Others: 999, Rejected: 1},
	Registry:       Registry{Configured: true, Contact: true, Since: time.Unix(1700000000, 5e8), Rejected: 3},
	Kinds:          []Kind{{Kind: "routes", Desired: 1000, Pending: 2, Failing: 1, Lag: 1500 * time.Millisecond, ReadTook: 12 * time.Millisecond}, {Kind: "nat", Desired: 1, InSync: true}},
	JournalRecords: 252, JournalBytes: 1 << 20, Reaping: 7,
	Collected: []Collected{{"released", 4}, {"adopted", 1}},
}

// busy has counted something of everything.
func busy() *Metrics {
	m := New(func() Snapshot { return full }, "v1.2.3")
	m.Call(cni.Add, 0, 3*time.Millisecond)
	m.Call(cni.Add, uint(cni.CodeTryAgain), time.Second)
	m.Call(cni.Del, 4711, time.Minute)
	m.Call("; DROP TABLE", uint(cni.CodeEnvironment), time.Microsecond)
	m.Request("patch", "subnetleases", 200, 5*time.Millisecond)
	m.Request("watch", "pods", 0, time.Minute)
	return m
}

// scraped returns what a scrape sees, through the text format.
func scraped(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestNamesAreLinted(t *testing.T) {
	problems, err := testutil.GatherAndLint(busy().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "weft_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	// The linter works at all.
	bad, err := promlint.New(strings.NewReader("# TYPE weft_pods counter\nweft_pods 1\n")).Lint()
	if err != nil || len(bad) == 0 {
		t.Errorf("the linter says nothing of a counter without unit and help: %v", err)
	}
}

func TestSnapshotIsToldAsItIs(t *testing.T) {
	const want = `
# HELP weft_pool_used_addresses Of them, those that pods have.
# TYPE weft_pool_used_addresses gauge
weft_pool_used_addresses{family="ipv4",pool=""} 0
weft_pool_used_addresses{family="ipv4",pool="default"} 250
weft_pool_used_addresses{family="ipv6",pool="default"} 250
# HELP weft_reconcile_lag_seconds Age of the oldest change that the kernel does not have yet, by kind; 0: it has all.
# TYPE weft_reconcile_lag_seconds gauge
weft_reconcile_lag_seconds{kind="nat"} 0
weft_reconcile_lag_seconds{kind="routes"} 1.5
# HELP weft_reconcile_in_sync 1 if the kernel has all that is wanted and no more, by kind.
# TYPE weft_reconcile_in_sync gauge
weft_reconcile_in_sync{kind="nat"} 1
weft_reconcile_in_sync{kind="routes"} 0
# HELP weft_leases Blocks whose leases are used here: of this node (self), and of others.
# TYPE weft_leases gauge
weft_leases{owner="others"} 999
weft_leases{owner="self"} 2
# HELP weft_registry_contact_change_timestamp_seconds When that contact began or was lost, in Unix time.
# TYPE weft_registry_contact_change_timestamp_seconds gauge
weft_registry_contact_change_timestamp_seconds 1.7000000005e+09
# HELP weft_garbage_collected_total What garbage collection did since the agent started, by action.
# TYPE weft_garbage_collected_total counter
weft_garbage_collected_total{action="adopted"} 1
weft_garbage_collected_total{action="released"} 4
`
	err := testutil.GatherAndCompare(busy().registry, strings.NewReader(want), "weft_pool_used_addresses", "weft_reconcile_lag_seconds",
		"weft_reconcile_in_sync", "weft_leases", "weft_registry_contact_change_timestamp_seconds", "weft_garbage_collected_total")
	if err != nil {
		t.Error(err)
	}
}

func TestNodeWithoutCluster(t *testing.T) {
	m := New(func() Snapshot { return Snapshot{Ready: true} }, "dev")
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "weft_registry") || strings.HasPrefix(f.GetName(), "weft_leases") {
			t.Errorf("%s is there: an alert on lost contact would fire", f.GetName())
		}
	}
}

func TestCallsByResult(t *testing.T) {
	m := busy()
	for _, c := range []struct {
		verb, result string
		want         uint64
	}{
		{"ADD", "ok", 1}, {"ADD", "try_again", 1}, {"DEL", "other", 1}, {"other", "environment", 1}, {"DEL", "ok", 0},
	} {
		var d dto.Metric
		if err := m.calls.WithLabelValues(c.verb, c.result).(interface{ Write(*dto.Metric) error }).Write(&d); err != nil {
			t.Fatal(err)
		}
		if got := d.GetHistogram().GetSampleCount(); got != c.want {
			t.Errorf("%s %s: %d calls, want %d", c.verb, c.result, got, c.want)
		}
		if c.want > 0 && len(d.GetHistogram().GetBucket()) != len(callBuckets) {
			t.Errorf("%s %s: no classic buckets: %v", c.verb, c.result, d.GetHistogram())
		}
	}
	for kind, want := range map[string]float64{"try_again": 1, "other": 1, "environment": 1, "kernel": 0} {
		if got := testutil.ToFloat64(m.failures.WithLabelValues(kind)); got != want {
			t.Errorf("failures of kind %s: %v, want %v", kind, got, want)
		}
	}
	if got, want := testutil.CollectAndCount(m.failures), len(kindByCode)+1; got != want {
		t.Errorf("%d kinds of failures, want all %d from the start", got, want)
	}
	if got := testutil.CollectAndCount(m.requests); got != 2 {
		t.Errorf("%d series of requests, want 2", got)
	}
}

// Every code that package cni has a name for has one here, and each its own.
func TestEveryCodeHasAKind(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../cni/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		codes++
		number, err := strconv.ParseUint(spec.Values[0].(*ast.BasicLit).Value, 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		if kindByCode[cni.Code(number)] == "" {
			t.Errorf("%s (%d) has no kind: give it a name here and a line in docs/metrics.md", spec.Names[0].Name, number)
		}
		return true
	})
	if codes < 17 {
		t.Errorf("found %d codes: is this the right file?", codes)
	}
	seen := map[string]cni.Code{}
	for code, kind := range kindByCode {
		if other, twice := seen[kind]; twice {
			t.Errorf("codes %d and %d are both %q", code, other, kind)
		}
		seen[kind] = code
	}
}
