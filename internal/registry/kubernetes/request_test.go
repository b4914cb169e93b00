// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// troubled is an API server in trouble, which no real one can be made to be in
// at will: it gives these answers to requests, one after the other.
func troubled(t *testing.T, answers ...string) (r *Registry, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if agent := req.Header.Get("User-Agent"); agent != "weft/1.2 (n1)" {
			t.Errorf("user agent %q", agent)
		}
		answer := answers[min(int(asked.Add(1)), len(answers))-1]
		w.Header().Set("Content-Type", "application/json")
		var code int
		var reason string
		if answer == "cut" {
			panic(http.ErrAbortHandler)
		}
		if _, err := fmt.Sscan(answer, &code, &reason); err != nil {
			t.Error(err)
		}
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests", code) // as priority and fairness does
			return
		}
		w.WriteHeader(code)
		if code < 300 {
			fmt.Fprint(w, `{"apiVersion": "weft.dev/v1alpha1", "kind": "SubnetLease", "metadata": {"name": "10-42-3-0-24"}}`)
			return
		}
		fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": %q, "code": %d}`, reason, code)
	}))
	t.Cleanup(server.Close)
	return opened(t, server.URL), asked
}

func opened(t *testing.T, url string) *Registry {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(Config{Kubeconfig: path, Server: url, Node: "n1", Version: "1.2"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(r.http.Transport) })
	return r
}

func TestRepetitions(t *testing.T) {
	create := func(r *Registry, l cluster.Lease) error { return r.Create(t.Context(), l) }
	replace := func(r *Registry, l cluster.Lease) error { return r.Replace(t.Context(), l) }
	remove := func(r *Registry, l cluster.Lease) error { return r.Delete(t.Context(), l) }
	pod := func(r *Registry, _ cluster.Lease) error { _, err := r.Pod(t.Context(), "a", "b"); return err }
	failure := errors.New("any error that a caller does not decide by")
	for name, c := range map[string]struct {
		do      func(*Registry, cluster.Lease) error
		answers []string
		asked   int
		want    error
	}{
		"create":                      {create, []string{"201 -"}, 1, nil},
		"create, too many":            {create, []string{"429 TooManyRequests", "201 -"}, 2, nil},
		"create, in doubt":            {create, []string{"500 InternalError", "409 AlreadyExists"}, 1, failure},
		"create, perhaps later":       {create, []string{"503 ServiceUnavailable", "201 -"}, 1, failure},
		"create, cut":                 {create, []string{"cut", "409 AlreadyExists"}, 1, failure},
		"create, exists":              {create, []string{"409 AlreadyExists"}, 1, registry.ErrExists},
		"create, invalid":             {create, []string{"422 Invalid"}, 1, failure},
		"replace, in doubt":           {replace, []string{"500 InternalError", "200 -"}, 2, nil},
		"replace, happened":           {replace, []string{"504 Timeout", "409 Conflict"}, 2, registry.ErrConflict},
		"replace, none":               {replace, []string{"404 NotFound"}, 1, registry.ErrConflict},
		"delete, in doubt":            {remove, []string{"500 InternalError", "404 NotFound"}, 2, nil},
		"delete, conflict, then gone": {remove, []string{"409 Conflict", "404 NotFound"}, 2, nil},
		"pod, gone":                   {pod, []string{"404 NotFound"}, 1, registry.ErrGone},
		"pod, never":                  {pod, []string{"503 ServiceUnavailable"}, 6, failure},
	} {
		t.Run(name, func(t *testing.T) {
			r, asked := troubled(t, c.answers...)
			l := lease("10.42.3.0/24", "n1")
			l.UID, l.Version = "u1", "7"
			start := time.Now()
			err := c.do(r, l)
			if took := time.Since(start); strings.HasPrefix(c.answers[0], "429") && took < time.Second {
				t.Errorf("it was repeated after %s, the server wanted 1s", took)
			}
			decided := errors.Is(err, registry.ErrExists) || errors.Is(err, registry.ErrConflict) || errors.Is(err, registry.ErrGone)
			ok := errors.Is(err, c.want) || errors.Is(c.want, failure) && err != nil && !decided
			if n := int(asked.Load()); !ok || n != c.asked {
				t.Errorf("after %d requests %v, want %d and %v", n, err, c.asked, c.want)
			}
		})
	}
}

// An error of a connection says what was to be done, and not the whole URL.
func TestConnectionRefused(t *testing.T) {
	r := opened(t, "http://127.0.0.1:1")
	err := r.Create(t.Context(), lease("10.42.3.0/24", "n1"))
	if err == nil || !strings.HasPrefix(err.Error(), "create SubnetLease 10-42-3-0-24: dial tcp 127.0.0.1:1: ") {
		t.Errorf("%v", err)
	}
}

func TestMarkReadyBeforeRun(t *testing.T) {
	if err := opened(t, "http://127.0.0.1:1").MarkReady(t.Context()); err == nil {
		t.Error("there is nothing to know the node from, and no error")
	}
}
