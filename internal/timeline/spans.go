// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.26.0"
	"go.opentelemetry.io/otel/trace"
)

// steps names the span that ends with a mark: PodKnown, and what package engine
// marks.
var steps = map[string]string{
	PodKnown:    "pod",
	"reserved":  "reserve",
	"announced": "announce",
	"attached":  "kernel",
}

// call exports a call that has ended:
//
//	weft-cni ADD
//	└─ agent ADD
//	   ├─ pod, reserve, announce, kernel
//	   └─ answer
//
// That of the shim ends with the agent's answer: the rest of it is not known
// here.
func (e *Exporter) call(c *Call, err error) {
	ctx, options := place(c)
	options = append(options, trace.WithAttributes(append(pod(c.Pod, c.UID, c.ContainerID), attribute.String("cni.verb", c.Verb))...))
	ctx, shim := e.open(ctx, "weft-cni "+c.Verb, c.began(), options...)
	inside, agent := e.open(ctx, "agent "+c.Verb, c.Received)
	from := c.Received
	for _, m := range c.marks {
		name, known := steps[m.Name]
		if !known {
			name = m.Name
		}
		e.span(inside, name, from, m.At)
		from = m.At
	}
	e.span(inside, "answer", from, c.ended)
	finish(agent, c.Received, c.ended, err)
	finish(shim, c.began(), c.ended, err)
}

// place says where among all spans those of a call are: below the runtime's,
// with a link to the pod's; below the pod's start; or, for DEL, beside it.
func place(c *Call) (context.Context, []trace.SpanStartOption) {
	ctx := context.Background()
	if sc, ok := parent(c.TraceParent); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
		if c.UID == "" {
			return ctx, nil
		}
		return ctx, []trace.SpanStartOption{trace.WithLinks(trace.Link{SpanContext: root(c.UID)})}
	}
	switch {
	case c.UID == "":
		return with(ctx, root(c.ContainerID).WithSpanID(trace.SpanID{})), nil
	case c.Verb == "ADD":
		return trace.ContextWithRemoteSpanContext(ctx, root(c.UID)), nil
	default:
		return with(ctx, root(c.UID).WithSpanID(trace.SpanID{})), nil
	}
}

// start exports how a pod came to be ready:
//
//	pod start
//	├─ schedule                    created … scheduled, in whole seconds
//	├─ kubelet and runtime         … the first ADD
//	├─ weft-cni ADD                each, exported by itself
//	├─ runtime, kubelet and watch  … the addresses are in the status
//	└─ containers and readiness    … the pod is ready
//
// A pod whose UID is not known has no trace of its own to put that into.
func (e *Exporter) start(s podStart) {
	if s.uid == "" {
		return
	}
	begin := s.first
	if !s.created.IsZero() && s.created.Before(begin) {
		begin = s.created
	}
	options := []trace.SpanStartOption{trace.WithAttributes(pod(s.pod, s.uid, s.container)...)}
	if sc, ok := parent(s.traceParent); ok {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: sc}))
	}
	ctx, span := e.open(with(context.Background(), root(s.uid)), "pod start", begin, options...)
	e.span(ctx, "schedule", s.created, s.scheduled)
	e.span(ctx, "kubelet and runtime", s.scheduled, s.first)
	e.span(ctx, "runtime, kubelet and watch", s.answered, s.addressed)
	if s.addressed.IsZero() {
		s.addressed = s.answered
	}
	e.span(ctx, "containers and readiness", s.addressed, s.ready)
	finish(span, begin, s.end, s.err)
}

func pod(name, uid, container string) []attribute.KeyValue {
	attributes := []attribute.KeyValue{semconv.ContainerID(container)}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		attributes = append(attributes, semconv.K8SNamespaceName(namespace), semconv.K8SPodName(name))
	}
	if uid != "" {
		attributes = append(attributes, semconv.K8SPodUID(uid))
	}
	return attributes
}

func (e *Exporter) open(ctx context.Context, name string, at time.Time, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return e.tracer.Start(ctx, name, append(options, trace.WithTimestamp(at))...)
}

// span exports what lies between two moments that are known.
func (e *Exporter) span(ctx context.Context, name string, from, to time.Time) {
	if from.IsZero() || to.IsZero() {
		return
	}
	_, span := e.open(ctx, name, from)
	finish(span, from, to, nil)
}

// finish ends a span. Clocks differ, and some have whole seconds: an end before
// the beginning is the beginning.
func finish(span trace.Span, from, to time.Time, err error) {
	if to.Before(from) {
		to = from
	}
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(trace.WithTimestamp(to))
}
