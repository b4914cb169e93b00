// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"weft.dev/weft/test/cluster"
)

// collector receives traces by OTLP over HTTP.
type collector struct {
	endpoint string

	mu    sync.Mutex
	spans []*tracev1.Span
}

// collect starts a collector in a node's network, where all nodes reach it.
func collect(t *testing.T, n *cluster.Node) *collector {
	t.Helper()
	at := netip.AddrPortFrom(n.Addresses[0], 4318)
	c := &collector{endpoint: "http://" + at.String()}
	listener := listenOn(t, n, at)
	server := &http.Server{Handler: c}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender has gone
	}
	request := &collectorv1.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(raw, request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// of are the spans of a pod, by name; the last one where there are several.
func (c *collector) of(uid string) map[string]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var trace string
	for _, s := range c.spans {
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "k8s.pod.uid" && a.GetValue().GetStringValue() == uid {
				trace = string(s.GetTraceId())
			}
		}
	}
	all := map[string]*tracev1.Span{}
	for _, s := range c.spans {
		if string(s.GetTraceId()) == trace {
			all[s.GetName()] = s
		}
	}
	return all
}
