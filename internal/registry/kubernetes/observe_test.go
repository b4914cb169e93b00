// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"net/http"
	"testing"
)

func TestDescribed(t *testing.T) {
	for _, c := range []struct{ method, url, want string }{
		{"GET", "/api/v1/nodes", "list nodes"},
		{"GET", "/api/v1/nodes?limit=500", "list nodes"},
		{"GET", "/api/v1/nodes?watch=true", "watch nodes"},
		{"GET", "/api/v1/nodes/a", "get nodes"},
		{"PATCH", "/api/v1/nodes/a/status", "patch nodes/status"},
		{"GET", "/api/v1/namespaces", "list namespaces"},
		{"GET", "/api/v1/namespaces/x", "get namespaces"},
		{"GET", "/api/v1/namespaces/x/pods/y", "get pods"},
		{"POST", "/api/v1/namespaces/x/events", "create events"},
		{"GET", "/apis/weft.dev/v1alpha1/subnetleases?watch=true", "watch subnetleases"},
		{"PUT", "/apis/weft.dev/v1alpha1/subnetleases/10-0-0-0-24", "update subnetleases"},
		{"DELETE", "/apis/weft.dev/v1alpha1/subnetleases/10-0-0-0-24", "delete subnetleases"},
		{"POST", "/apis/weft.dev/v1alpha1/namespaces/x/addressclaims", "create addressclaims"},
		{"GET", "/clusters/one/api/v1/nodes/a", "get nodes"},
		{"GET", "/version", "get other"},
		{"GET", "/apis/weft.dev", "get other"},
		{"GET", "/api/", "get other"},
	} {
		req, err := http.NewRequest(c.method, "https://localhost"+c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if verb, resource := described(req); verb+" "+resource != c.want {
			t.Errorf("%s %s is %s %s, want %s", c.method, c.url, verb, resource, c.want)
		}
	}
}
