// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPages(t *testing.T) {
	var unready atomic.Pointer[error]
	m := busy()
	page := m.Handler(Health{
		Live: func() error { return nil },
		Ready: func() error {
			if p := unready.Load(); p != nil {
				return *p
			}
			return nil
		},
	})
	why := errors.New("node n1 has no IPv4 subnet yet: the registry is out of reach")
	for _, c := range []struct {
		path    string
		unready *error
		status  int
		text    string
	}{
		{"/healthz", nil, 200, "ok"},
		{"/readyz", nil, 200, "ok"},
		{"/readyz?verbose", nil, 200, "[+]readyz ok"},
		{"/readyz", &why, 503, why.Error()},
		{"/readyz?verbose", &why, 503, why.Error()},
		{"/healthz", &why, 200, "ok"},
		{"/metrics", &why, 200, `weft_cni_call_duration_seconds_count{result="ok",verb="ADD"} 1`},
		{"/", nil, 404, ""},
		{"/debug/pprof/", nil, 404, ""},
	} {
		unready.Store(c.unready)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("GET %s: %d %s\nwant %d %s", c.path, w.Code, w.Body, c.status, c.text)
		}
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// A Prometheus that asks for protobuf gets the native histogram.
func TestNativeHistogram(t *testing.T) {
	for _, f := range exposed(t) {
		if f.GetName() == "weft_cni_call_duration_seconds" && f.GetMetric()[0].GetHistogram().Schema == nil {
			t.Error("no native histogram")
		}
	}
	w := httptest.NewRecorder()
	busy().Handler(Health{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if f := scraped(t, w.Body.String())["weft_cni_call_duration_seconds"]; f.GetType() != dto.MetricType_HISTOGRAM {
		t.Errorf("as text: %v", f)
	}
}

// lines hands on what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

func TestServeUntilTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	logged := make(lines, 16)
	ended := make(chan error, 1)
	healthy := Health{Live: func() error { return nil }, Ready: func() error { return nil }}
	go func() {
		ended <- busy().Serve(ctx, "127.0.0.1:0", healthy, slog.New(slog.NewTextHandler(logged, nil)))
	}()
	_, addr, ok := strings.Cut(strings.TrimSpace(<-logged), "address=")
	if !ok {
		t.Fatal("the log does not say the address")
	}
	// One who connects and says nothing does not hold up the end.
	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()

	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still serving")
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("somebody still listens")
	}
}

func TestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = busy().Serve(t.Context(), taken.Addr().String(), Health{}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "serve metrics: ") || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("error %v: want one that names the address", err)
	}
}
