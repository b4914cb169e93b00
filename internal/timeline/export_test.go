// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is a collector.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*collector.ExportTraceServiceRequest
	paths    []string
	answer   func(r *http.Request) int // nil: 200
}

func newReceiver(t *testing.T, answer func(r *http.Request) int) *receiver {
	rec := &receiver{answer: answer}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender has gone
		}
		if rec.answer != nil {
			if status := rec.answer(r); status != http.StatusOK {
				w.WriteHeader(status)
				return
			}
		}
		request := &collector.ExportTraceServiceRequest{}
		if err := proto.Unmarshal(raw, request); err != nil {
			t.Errorf("not an ExportTraceServiceRequest: %v", err)
		}
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.requests, rec.paths = append(rec.requests, request), append(rec.paths, r.URL.Path)
	}))
	t.Cleanup(rec.Close)
	return rec
}

// spans returns all that has come, by name.
func (r *receiver) spans() map[string]*otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]*otlp.Span{}
	for _, request := range r.requests {
		for _, rs := range request.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					all[s.GetName()] = s
				}
			}
		}
	}
	return all
}

func exportTo(t *testing.T, endpoint string, log io.Writer) *Exporter {
	t.Helper()
	e, err := Export(t.Context(), endpoint, "v1.2.3", "n1", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestCollectorReceives(t *testing.T) {
	rec := newReceiver(t, nil)
	e := exportTo(t, rec.URL, io.Discard)
	r := New(8, e)
	received := time.Now()
	c := r.Begin(Start{
		Verb: "ADD", Pod: "default/web-0", UID: "u1", ContainerID: "box", Shim: received.Add(-3 * ms), Received: received,
	})
	c.Mark(PodKnown)
	c.Mark("attached")
	c.End(nil)
	r.Pod(web("u1", 2), time.Now())
	r.Close()
	e.Close()

	spans := rec.spans()
	start, shim, agent, kernel := spans["pod start"], spans["weft-cni ADD"], spans["agent ADD"], spans["kernel"]
	if start == nil || shim == nil || agent == nil || kernel == nil || spans["schedule"] == nil {
		t.Fatalf("received %v", spans)
	}
	if !bytes.Equal(shim.GetParentSpanId(), start.GetSpanId()) || !bytes.Equal(agent.GetParentSpanId(), shim.GetSpanId()) ||
		!bytes.Equal(kernel.GetParentSpanId(), agent.GetSpanId()) || len(start.GetParentSpanId()) > 0 {
		t.Errorf("parents: %v", spans)
	}
	id := root("u1").TraceID()
	for name, s := range spans {
		if !bytes.Equal(s.GetTraceId(), id[:]) {
			t.Errorf("%s is in the trace %x, want %s", name, s.GetTraceId(), id)
		}
	}
	if got, want := agent.GetStartTimeUnixNano()-shim.GetStartTimeUnixNano(), uint64(3*ms); got != want {
		t.Errorf("the agent began %d ns after the shim, want %d", got, want)
	}
	if rec.paths[0] != "/v1/traces" {
		t.Errorf("path %s", rec.paths[0])
	}
	resource := map[string]string{}
	for _, a := range rec.requests[0].GetResourceSpans()[0].GetResource().GetAttributes() {
		resource[a.GetKey()] = a.GetValue().GetStringValue()
	}
	want := map[string]string{"service.name": "weft", "service.version": "v1.2.3", "k8s.node.name": "n1"}
	if diff := gocmp.Diff(want, resource); diff != "" {
		t.Error(diff)
	}
}

// call is an ADD of no length.
func call(r *Recorder) {
	c := r.Begin(Start{Verb: "ADD", Pod: "default/web-0", UID: "u1", ContainerID: "box", Received: time.Now()})
	c.Mark("reserved")
	c.End(nil)
}

// A collector that takes requests and never answers: calls go on, and the agent
// ends in time.
func TestCollectorHangs(t *testing.T) {
	asked := make(chan struct{}, 1)
	rec := newReceiver(t, func(r *http.Request) int {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
		return http.StatusServiceUnavailable
	})
	e := exportTo(t, rec.URL, io.Discard)
	r := New(8, e)
	const calls = 5000 // spans of some times what is queued
	start := time.Now()
	for range calls {
		call(r)
	}
	if took := time.Since(start); took > calls*ms {
		t.Errorf("%d calls took %s: they waited for the collector", calls, took)
	}
	<-asked
	closing := time.Now()
	r.Close()
	e.Close()
	if took := time.Since(closing); took > 2*time.Second {
		t.Errorf("closing took %s, want 2 s at most", took)
	}
	call(r) // too late, and harmless
}

// One that is not there at all is spoken of once, and again when it is back.
func TestCollectorComesAndGoes(t *testing.T) {
	var log bytes.Buffer
	down := true
	rec := newReceiver(t, func(*http.Request) int {
		if down {
			return http.StatusForbidden
		}
		return http.StatusOK
	})
	e := exportTo(t, rec.URL, &log)
	r := New(8, e)
	flush := func() {
		call(r)
		if err := e.provider.ForceFlush(context.Background()); err != nil {
			t.Error(err)
		}
	}
	flush()
	flush()
	if got := strings.Count(log.String(), "level=WARN"); got != 1 || !strings.Contains(log.String(), rec.URL) {
		t.Errorf("%d warnings, want one that names the endpoint:\n%s", got, log.String())
	}
	down = false
	flush()
	if !strings.Contains(log.String(), "traces exported again") || len(rec.spans()) == 0 {
		t.Errorf("%d spans; log:\n%s", len(rec.spans()), log.String())
	}
	rec.Close()
	flush()
	if got := strings.Count(log.String(), "level=WARN"); got != 2 {
		t.Errorf("%d warnings, want 2:\n%s", got, log.String())
	}
	r.Close()
	e.Close()
}

func TestBadEndpoint(t *testing.T) {
	for _, endpoint := range []string{"http://[::1", "collector:4318", ""} {
		e, err := Export(t.Context(), endpoint, "dev", "", slog.New(slog.DiscardHandler))
		if err == nil {
			e.Close()
			t.Errorf("%q is taken for an endpoint", endpoint)
		}
	}
}
