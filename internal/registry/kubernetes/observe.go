// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"net/http"
	"strings"
	"time"
)

// observer tells of every request.
type observer struct {
	next    http.RoundTripper
	observe func(verb, resource string, code int, took time.Duration)
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := o.next.RoundTrip(req)
	code := 0
	if err == nil {
		code = resp.StatusCode
	}
	verb, resource := described(req)
	o.observe(verb, resource, code, time.Since(start))
	return resp, err
}

// WrappedRoundTripper lets the connections be closed.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }

// described returns verb and resource of a request, as in RBAC:
//
//	[prefix]/api/v1/[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]
//	[prefix]/apis/GROUP/VERSION/...
func described(req *http.Request) (verb, resource string) {
	path := req.URL.Path
	var parts []string
	if _, rest, found := strings.Cut(path, "/apis/"); found {
		parts = after(rest, 2)
	} else if _, rest, found := strings.Cut(path, "/api/"); found {
		parts = after(rest, 1)
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return strings.ToLower(req.Method), "other"
	}
	resource = parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	switch {
	case req.Method == http.MethodPost:
		verb = "create"
	case req.Method == http.MethodPut:
		verb = "update"
	case req.Method != http.MethodGet:
		verb = strings.ToLower(req.Method)
	case len(parts) > 1:
		verb = "get"
	case req.URL.Query().Get("watch") != "":
		verb = "watch"
	default:
		verb = "list"
	}
	return verb, resource
}

// after returns the segments of a path behind the first n.
func after(path string, n int) []string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[min(n, len(parts)):]
}
