// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// root returns the place of a pod's start among all spans: a function of the
// pod's UID, so that each of its spans finds its trace without being told.
func root(uid string) trace.SpanContext {
	sum := sha256.Sum256([]byte("weft pod " + uid))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24]), TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// parent reads a traceparent (https://www.w3.org/TR/trace-context/). It returns
// false for none, for one that is not well-formed, and for one of a trace that
// the runtime does not record: to continue that would be to be lost with it.
func parent(traceParent string) (trace.SpanContext, bool) {
	carrier := propagation.MapCarrier{"traceparent": traceParent}
	sc := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	return sc, sc.IsValid() && sc.IsSampled()
}

type idKey struct{}

// ids is the generator of ids: those that the context asks for, or random ones.
type ids struct{}

// with makes the next span that has no parent the one of that place. A zero span
// id stands for a random one.
func with(ctx context.Context, sc trace.SpanContext) context.Context {
	return context.WithValue(ctx, idKey{}, sc)
}

// NewIDs implements sdktrace.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	sc, _ := ctx.Value(idKey{}).(trace.SpanContext)
	t, s := sc.TraceID(), sc.SpanID()
	for !t.IsValid() {
		binary.NativeEndian.PutUint64(t[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(t[8:], rand.Uint64())
	}
	if !s.IsValid() {
		s = g.NewSpanID(ctx, t)
	}
	return t, s
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (s trace.SpanID) {
	for !s.IsValid() {
		binary.NativeEndian.PutUint64(s[:], rand.Uint64())
	}
	return s
}
