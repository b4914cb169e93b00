// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health answers a kubelet's probes. nil says that all is well; an error says
// what is not. Both are called for each question, and must not wait.
type Health struct {
	Live  func() error // an agent that does not live is to be restarted
	Ready func() error // an agent that is not ready cannot serve pods now
}

const (
	// requestTimeout bounds reading a request, scrapeTimeout answering it: a
	// caller that stalls must not hold a connection for ever.
	requestTimeout = 5 * time.Second
	scrapeTimeout  = 20 * time.Second
	idleTimeout    = 2 * time.Minute
	// stopTimeout bounds how long the answers in flight hold up the agent's end.
	stopTimeout = time.Second
	// scrapes is how many may be answered at a time: each reads all the state.
	scrapes = 4
)

// Serve answers on addr, such as ":9119", until ctx ends: /metrics,
// /healthz and /readyz. It returns an error only if it cannot listen or has to
// stop by itself.
func (m *Metrics) Serve(ctx context.Context, addr string, health Health, log *slog.Logger) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	server := &http.Server{
		Handler: m.Handler(health), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ReadTimeout: requestTimeout, WriteTimeout: scrapeTimeout + requestTimeout, IdleTimeout: idleTimeout,
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
	log.Info("metrics served", "address", listener.Addr().String())
	err = server.Serve(listener)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve metrics: %w", err)
}

// Handler returns what Serve serves.
func (m *Metrics) Handler(health Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, MaxRequestsInFlight: scrapes, Timeout: scrapeTimeout, EnableOpenMetrics: true,
		ErrorHandling: promhttp.ContinueOnError, // part of it is better than nothing
	}))
	mux.Handle("GET /healthz", probe("healthz", health.Live))
	mux.Handle("GET /readyz", probe("readyz", health.Ready))
	return mux
}

// probe answers 200 or 503. The text of an answer that is not well says why; a
// healthy one is "ok", and with ?verbose names the check, as other components
// of Kubernetes do.
func probe(name string, check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, verbose := r.URL.Query()["verbose"]
		err := check()
		switch {
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "%s check failed: %v\n", name, err)
		case verbose:
			fmt.Fprintf(w, "[+]%s ok\n%s check passed\n", name, name)
		default:
			fmt.Fprint(w, "ok")
		}
	})
}
