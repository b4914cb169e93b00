// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"
)

// exposed returns the families that busy exposes, by name.
func exposed(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := busy().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

// labels returns a family's labels as docs/metrics.md writes them.
func labels(f *dto.MetricFamily) []string {
	var names []string
	for _, l := range f.GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return names
}

var code = regexp.MustCompile("`([^`]+)`")

// Each metric has a row in docs/metrics.md with its labels, and each row a metric.
func TestEachMetricIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`weft_") {
			continue
		}
		names := []string{}
		for _, m := range code.FindAllStringSubmatch(cells[2], -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		documented[strings.Trim(strings.TrimSpace(cells[1]), "`")] = names
	}
	families := exposed(t)
	for name, f := range families {
		if !strings.HasPrefix(name, "weft_") {
			continue
		}
		has, there := documented[name]
		if !there {
			t.Errorf("docs/metrics.md has no row for %s", name)
		} else if !slices.Equal(has, labels(f)) {
			t.Errorf("docs/metrics.md says that %s has the labels %v, but it has %v", name, has, labels(f))
		}
	}
	for name := range documented {
		if families[name] == nil {
			t.Errorf("docs/metrics.md has %s, which does not exist", name)
		}
	}
	for _, kind := range kinds() {
		if !strings.Contains(string(raw), "`"+kind+"`") {
			t.Errorf("docs/metrics.md does not explain the kind of error %s", kind)
		}
	}
}

type dashboard struct {
	Panels []struct {
		ID          int
		Title       string
		Description string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
}

func TestDashboardShowsWhatExists(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/grafana/weft.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	families := exposed(t)
	shown := map[string]bool{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: a second of its number, or without title, description or target", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			maps.Copy(shown, uses(t, families, "panel "+p.Title, target.Expr))
		}
	}
	// What the person at the keyboard asks first.
	for _, name := range []string{
		"weft_cni_call_duration_seconds", "weft_cni_call_failures_total", "weft_pool_used_addresses", "weft_leases",
		"weft_reconcile_lag_seconds", "weft_api_request_duration_seconds", "process_resident_memory_bytes",
	} {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestAlertsUseWhatExists(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For string
				Annotations      map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	families, rules := exposed(t), 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			uses(t, families, "alert "+r.Alert, r.Expr)
			for _, m := range results.FindAllStringSubmatch(r.Expr, -1) {
				for result := range strings.SplitSeq(m[1], "|") {
					if result != "ok" && !slices.Contains(kinds(), result) {
						t.Errorf("alert %s: no call has the result %s", r.Alert, result)
					}
				}
			}
			if r.For == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %s: without a duration, or without a word on what to do", r.Alert)
			}
			if !strings.Contains(string(docs), "`"+r.Alert+"`") {
				t.Errorf("docs/metrics.md does not have the alert %s", r.Alert)
			}
		}
	}
	if rules == 0 {
		t.Error("no alerts")
	}
}

var (
	selector = regexp.MustCompile(`([a-z_][a-z0-9_]*)\s*(\{([^}]*)\})?`)
	results  = regexp.MustCompile(`result(?:=~|!~|!=|=)"([^"]*)"`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
)

// uses returns the metrics of an expression, and fails if one of them, or a
// label by which it is selected, does not exist. Prometheus adds job and
// instance.
func uses(t *testing.T, families map[string]*dto.MetricFamily, where, expr string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		name := m[1]
		if !strings.HasPrefix(name, "weft_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			continue
		}
		f := families[name]
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			base, cut := strings.CutSuffix(name, suffix)
			if b := families[base]; cut && b != nil && b.GetType() == dto.MetricType_HISTOGRAM {
				f = b
			}
		}
		if f == nil {
			t.Errorf("%s: no metric %s", where, name)
			continue
		}
		found[f.GetName()] = true
		for _, l := range matcher.FindAllStringSubmatch(m[3], -1) {
			if l[1] != "instance" && l[1] != "job" && !slices.Contains(labels(f), l[1]) {
				t.Errorf("%s: %s has no label %s", where, name, l[1])
			}
		}
	}
	if len(found) == 0 {
		t.Errorf("%s: %q uses no metric of ours", where, expr)
	}
	return found
}
