// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.26.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	// queued bounds the spans in memory; what comes on top is dropped. A call
	// has some seven.
	queued = 4096
	// gather is how long a span waits for others to be sent with.
	gather = 2 * time.Second
	// sendTimeout bounds one attempt, sendPatience all attempts for a batch.
	sendTimeout  = 5 * time.Second
	sendPatience = 20 * time.Second
	// flushTimeout is how long Close waits for the collector.
	flushTimeout = 1500 * time.Millisecond
)

// Exporter sends spans to a collector, behind everybody's back: nothing that it
// offers waits, and a collector that is down costs the spans of that time.
type Exporter struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	client   *otlptrace.Exporter
	http     *http.Transport
}

// Export returns an Exporter to a collector's OTLP/HTTP endpoint, such as
// "http://collector:4318"; the path is /v1/traces unless the URL has another.
// version is that of the release, node the name of the Kubernetes node, "" for
// none. Headers, such as credentials, are read from OTEL_EXPORTER_OTLP_HEADERS.
// Nobody is called before there is a span.
func Export(ctx context.Context, endpoint, version, node string, log *slog.Logger) (*Exporter, error) {
	target, err := tracesURL(endpoint)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
	client, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(target),
		otlptracehttp.WithHTTPClient(&http.Client{Transport: transport, Timeout: sendTimeout}),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: sendTimeout, MaxElapsedTime: sendPatience,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("export traces to %s: %w", endpoint, err)
	}
	attributes := resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName("weft"), semconv.ServiceVersion(version))
	if node != "" {
		attributes = resource.NewWithAttributes(semconv.SchemaURL,
			semconv.ServiceName("weft"), semconv.ServiceVersion(version), semconv.K8SNodeName(node))
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(attributes),
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithBatcher(&contact{SpanExporter: client, endpoint: endpoint, log: log},
			sdktrace.WithMaxQueueSize(queued), sdktrace.WithBatchTimeout(gather), sdktrace.WithExportTimeout(sendPatience)),
	)
	return &Exporter{
		provider: provider, client: client, http: transport,
		tracer: provider.Tracer("weft.dev/weft", trace.WithInstrumentationVersion(version)),
	}, nil
}

// tracesURL returns where a collector takes traces.
func tracesURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", fmt.Errorf("export traces: endpoint: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("export traces: endpoint %q: want an URL such as http://collector:4318", endpoint)
	case strings.Trim(u.Path, "/") == "":
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// Close sends what is queued if the collector takes it at once, and returns
// within two seconds.
func (e *Exporter) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if e.provider.Shutdown(ctx) != nil {
		// An attempt is still under way. This ends it, and those that would
		// follow.
		_ = e.client.Shutdown(context.Background())
	}
	e.http.CloseIdleConnections()
}

// contact says when the collector is lost and found again, once each. The
// batches are sent one after the other.
type contact struct {
	sdktrace.SpanExporter
	endpoint string
	log      *slog.Logger
	lost     bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *contact) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !c.lost:
		c.log.Warn("traces not exported, those of this time are lost", "endpoint", c.endpoint, "error", err)
	case err == nil && c.lost:
		c.log.Info("traces exported again", "endpoint", c.endpoint)
	}
	c.lost = err != nil
	return nil
}
