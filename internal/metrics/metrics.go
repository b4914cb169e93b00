// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weft.dev/weft/internal/cni"
)

// Metrics counts what happens. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.HistogramVec
	failures *prometheus.CounterVec
	requests *prometheus.HistogramVec
}

// callBuckets are in seconds. A call takes a few milliseconds; what takes longer
// waits for the API server or the kernel, and a runtime gives up after minutes.
var callBuckets = []float64{.001, .002, .004, .008, .015, .03, .06, .125, .25, .5, 1, 2, 4, 8, 15, 30}

// nativeFactor and nativeBuckets bound the native histograms, which a Prometheus
// that asks for them gets besides: neighbouring buckets differ by a tenth.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
)

// New returns Metrics that call read for each scrape. version is that of the
// release.
func New(read func() Snapshot, version string) *Metrics {
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: callBuckets,
			NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets,
			NativeHistogramMinResetDuration: time.Hour,
		}
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewHistogramVec(histogram("weft_cni_call_duration_seconds",
			"Time from the arrival of a CNI call at the agent to its answer, by verb and result: ok, or the kind of error."),
			[]string{"verb", "result"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_cni_call_failures_total", Help: "CNI calls answered with an error, by kind of error.",
		}, []string{"kind"}),
		requests: prometheus.NewHistogramVec(histogram("weft_api_request_duration_seconds",
			"Time of requests to the API server, by verb, resource and status code; code none: no answer came."),
			[]string{"verb", "resource", "code"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weft_build_info", Help: "Always 1; the labels tell the release.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version(), "goarch": runtime.GOARCH},
	})
	build.Set(1)
	// Kinds that have not happened are 0, not absent: an alert on their increase
	// sees the first one.
	for _, kind := range kinds() {
		m.failures.WithLabelValues(kind)
	}
	m.registry.MustRegister(m.calls, m.failures, m.requests, build, state{read},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Call counts one CNI call. code is that of the error object, 0 for success.
func (m *Metrics) Call(verb string, code uint, took time.Duration) {
	result := "ok"
	if code != 0 {
		result = kindOf(cni.Code(code))
		m.failures.WithLabelValues(result).Inc()
	}
	m.calls.WithLabelValues(verbOf(verb), result).Observe(took.Seconds())
}

// Request counts one request to the API server. verb and resource are such as
// "patch" and "subnetleases"; code is the HTTP status, 0 if no answer came.
func (m *Metrics) Request(verb, resource string, code int, took time.Duration) {
	status := "none"
	if code > 0 {
		status = strconv.Itoa(code)
	}
	m.requests.WithLabelValues(verb, resource, status).Observe(took.Seconds())
}

// verbOf keeps what a caller made up out of the label.
func verbOf(verb string) string {
	switch verb {
	case cni.Add, cni.Del, cni.Check, cni.GC, cni.Status, cni.Version:
		return verb
	}
	return "other"
}
