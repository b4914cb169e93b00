// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"weft.dev/weft/internal/engine"
)

// inMemory returns an Exporter whose spans are in memory as soon as they end.
func inMemory() (*Exporter, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithIDGenerator(ids{}))
	return &Exporter{provider: provider, tracer: provider.Tracer("test")}, spans
}

// tree writes the spans of a trace, children below their parent, as
// "NAME begin…end" in milliseconds.
func tree(spans tracetest.SpanStubs, of trace.TraceID) string {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), b.EndTime.Compare(a.EndTime))
	})
	known := map[trace.SpanID]bool{}
	for _, s := range spans {
		known[s.SpanContext.SpanID()] = true
	}
	var out strings.Builder
	var write func(parent trace.SpanID, indent string)
	write = func(parent trace.SpanID, indent string) {
		for _, s := range spans {
			id := s.Parent.SpanID()
			below := id == parent || !parent.IsValid() && !known[id]
			if s.SpanContext.TraceID() != of || !below {
				continue
			}
			since := func(t time.Time) int64 { return t.Sub(time.Unix(0, birth)).Milliseconds() }
			fmt.Fprintf(&out, "%s%s %d…%d", indent, s.Name, since(s.StartTime), since(s.EndTime))
			if s.Status.Description != "" {
				fmt.Fprintf(&out, " error: %s", s.Status.Description)
			}
			if id.IsValid() && !known[id] {
				fmt.Fprintf(&out, " below %s", id)
			}
			for _, l := range s.Links {
				fmt.Fprintf(&out, " linked with %s", l.SpanContext.SpanID())
			}
			out.WriteString("\n")
			write(s.SpanContext.SpanID(), indent+"  ")
		}
	}
	write(trace.SpanID{}, "")
	return out.String()
}

func TestSpansOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, spans := inMemory()
		r := New(8, e)
		defer r.Close()
		r.Pod(web("u1", 0), at(1010*ms))
		at(1100 * ms)
		add(r, "u1", "box1", errors.New("no address"))
		at(1500 * ms)
		add(r, "u1", "box2", nil)
		r.Pod(web("u1", 1), at(2000*ms))
		r.Pod(web("u1", 2), at(2500*ms))
		r.Pod(web("u1", 1), at(3000*ms)) // not ready
		r.Pod(web("u1", 2), at(3500*ms)) // and again: it started once
		at(9000 * ms)
		c := begin(r, "DEL", "u1", "box2")
		time.Sleep(ms)
		c.Mark("released")
		c.End(nil)
		r.Gone("default/web-0", at(9500*ms))
		const want = `pod start 0…2500
  schedule 0…1000
  kubelet and runtime 1000…1100
  weft-cni ADD 1100…1104 error: no address
    agent ADD 1102…1104 error: no address
      pod 1102…1103
      answer 1103…1104
      reserve 1103…1103
  weft-cni ADD 1500…1506
    agent ADD 1502…1506
      pod 1502…1503
      kernel 1503…1505
      reserve 1503…1503
      answer 1505…1506
  runtime, kubelet and watch 1506…2000
  containers and readiness 2000…2500
weft-cni DEL 8998…9001
  agent DEL 9000…9001
    released 9000…9001
    answer 9001…9001
`
		if diff := gocmp.Diff(want, tree(spans.GetSpans(), root("u1").TraceID())); diff != "" {
			t.Error(diff)
		}
		attributes := map[string]string{}
		for _, s := range spans.GetSpans() {
			if s.Name == "weft-cni DEL" {
				for _, a := range s.Attributes {
					attributes[string(a.Key)] = a.Value.String()
				}
			}
		}
		wantAttributes := map[string]string{
			"k8s.pod.name": "web-0", "k8s.namespace.name": "default", "k8s.pod.uid": "u1", "container.id": "box2", "cni.verb": "DEL",
		}
		if diff := gocmp.Diff(wantAttributes, attributes); diff != "" {
			t.Error(diff)
		}
	})
}

// A start that does not end well is exported all the same, once.
func TestStartThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(r *Recorder)
		want    string
	}{
		"never ready": {
			func(r *Recorder) { add(r, "u1", "box", nil); at(10 * time.Minute); r.Pod(web("u1", 2), time.Now()) },
			"pod start 0…121102 error: the pod was not ready 2m0s after its first ADD",
		},
		"ADD always fails": {
			func(r *Recorder) {
				add(r, "u1", "box", errors.New("no address"))
				at(time.Minute)
				add(r, "u1", "box", errors.New("still none"))
				at(10 * time.Minute)
			},
			"pod start 0…121102 error: still none",
		},
		"deleted early": {
			func(r *Recorder) {
				add(r, "u1", "box", nil)
				r.Gone("default/web-0", at(3000*ms))
				at(10 * time.Minute)
			},
			"pod start 0…3000 error: the pod was deleted before it was ready",
		},
		"deleted while ADD is under way": {
			func(r *Recorder) {
				c := begin(r, "ADD", "u1", "box")
				r.Gone("default/web-0", at(3000*ms))
				c.End(errors.New("too late"))
			},
			"pod start 0…3000 error: the pod was deleted before it was ready",
		},
		"the agent stops": {
			func(r *Recorder) { add(r, "u1", "box", nil); r.Close(); at(10 * time.Minute) },
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, spans := inMemory()
				r := New(8, e)
				defer r.Close()
				r.Pod(web("u1", 0), at(1010*ms))
				at(1100 * ms)
				c.happens(r)
				synctest.Wait()
				var starts []string
				for line := range strings.Lines(tree(spans.GetSpans(), root("u1").TraceID())) {
					if strings.HasPrefix(line, "pod start") {
						starts = append(starts, strings.TrimSpace(line))
					}
				}
				if got := strings.Join(starts, "\n"); got != c.want {
					t.Errorf("%s\nwant %s", got, c.want)
				}
			})
		})
	}
}

// Where no watch says what becomes of a pod, the start ends with the ADD.
func TestStartWithoutWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, spans := inMemory()
		r := New(8, e)
		defer r.Close()
		at(1000 * ms)
		add(r, "u1", "box", nil)
		at(5000 * ms)
		begin(r, "DEL", "u1", "box").End(nil)
		if got := tree(spans.GetSpans(), root("u1").TraceID()); !strings.HasPrefix(got, "pod start 1000…1006\n  weft-cni ADD 1000…1006\n") {
			t.Error(got)
		}
		spans.Reset()
		c := r.Begin(Start{Verb: "ADD", ContainerID: "box7", Received: time.Now()})
		c.End(nil)
		at(10 * time.Minute)
		want := "weft-cni ADD 5000…5000\n  agent ADD 5000…5000\n    answer 5000…5000\n"
		if got := tree(spans.GetSpans(), root("box7").TraceID()); got != want || len(spans.GetSpans()) != 3 {
			t.Errorf("without UID:\n%s", got)
		}
	})
}

func TestRuntimesTraceIsContinued(t *testing.T) {
	const theirs, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	id, err := trace.TraceIDFromHex(theirs)
	if err != nil {
		t.Fatal(err)
	}
	ours := root("u1")
	for name, c := range map[string]struct {
		traceParent string
		in          trace.TraceID
		want        string
	}{
		"recorded":     {"00-" + theirs + "-" + span + "-01", id, "weft-cni ADD 0…1 below " + span + " linked with " + ours.SpanID().String()},
		"not recorded": {"00-" + theirs + "-" + span + "-00", ours.TraceID(), "weft-cni ADD 0…1 below " + ours.SpanID().String()},
		"none":         {"", ours.TraceID(), "weft-cni ADD 0…1 below " + ours.SpanID().String()},
		"garbage":      {"00-" + theirs + "\nx", ours.TraceID(), "weft-cni ADD 0…1 below " + ours.SpanID().String()},
		"zero":         {"00-" + strings.Repeat("0", 32) + "-" + span + "-01", ours.TraceID(), "weft-cni ADD 0…1 below " + ours.SpanID().String()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, spans := inMemory()
				r := New(8, e)
				defer r.Close()
				call := r.Begin(Start{Verb: "ADD", Pod: "default/web-0", UID: "u1", ContainerID: "box", Received: at(0), TraceParent: c.traceParent})
				time.Sleep(ms)
				call.End(nil)
				first, _, _ := strings.Cut(tree(spans.GetSpans(), c.in), "\n")
				if first != c.want {
					t.Errorf("%s\nwant %s", first, c.want)
				}
				spans.Reset()
				r.Pod(web("u1", 2), at(100*ms))
				first, _, _ = strings.Cut(tree(spans.GetSpans(), ours.TraceID()), "\n")
				if linked := strings.Contains(first, "linked with "+span); !strings.HasPrefix(first, "pod start") || linked != (c.in == id) {
					t.Errorf("the pod's start: %s", first)
				}
			})
		})
	}
}

// Two agents, of two releases, give one pod one trace, and two pods two.
func TestIDsFollowFromTheUID(t *testing.T) {
	if got, want := root("u1"), "4dc935c90d58d99d7cd5e29779fcb1bf e65da88fb2ba0553"; got.TraceID().String()+" "+got.SpanID().String() != want {
		t.Errorf("%s %s, want %s", got.TraceID(), got.SpanID(), want)
	}
	if root("u1").TraceID() == root("u2").TraceID() {
		t.Error("two UIDs, one trace")
	}
}

// What package engine marks has a span of a proper name.
func TestEngineStepsHaveNames(t *testing.T) {
	for _, mark := range []string{engine.Reserved, engine.Announced, engine.Attached} {
		if steps[mark] == "" {
			t.Errorf("no name for what ends with %q", mark)
		}
	}
}
