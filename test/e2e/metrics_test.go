// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
)

// Every agent says by HTTP that it lives and is ready, and has metrics that
// count what it did.
func testMetrics(t *testing.T, s *suite) {
	ns := s.namespace(t)
	for _, p := range s.start(t, sleeper(ns, "a", "node1"), sleeper(ns, "b", "node2")) {
		s.remove(t, ns, p.Name)
	}
	for _, n := range s.Nodes {
		at := netip.AddrPortFrom(n.Addresses[0], 9119)
		for _, page := range []string{"healthz", "readyz"} {
			if _, err := askHTTP(t.Context(), s.Nodes[0], at, page); err != nil {
				t.Error(err)
			}
		}
		text, err := askHTTP(t.Context(), s.Nodes[0], at, "metrics")
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{
			`weft_cni_call_duration_seconds_count\{result="ok",verb="ADD"\} [1-9]`,
			`weft_cni_call_duration_seconds_count\{result="ok",verb="DEL"\} [1-9]`,
			`weft_pool_used_addresses\{family="ipv4",pool="default"\} \d`,
			`weft_attachments\{phase="complete"\} \d`,
			`weft_registry_connected 1`,
			`weft_ready 1`,
			`weft_leases\{owner="others"\} [1-9]`,
			`weft_api_request_duration_seconds_count\{code="201",resource="subnetleases",verb="create"\} [1-9]`,
		} {
			if !regexp.MustCompile("(?m)^" + want).MatchString(text) {
				family, _, _ := strings.Cut(want, `\{`)
				t.Errorf("%s has no metric %s, but\n%s", n.Name, want, strings.Join(regexp.MustCompile("(?m)^"+family+".*$").FindAllString(text, -1), "\n"))
			}
		}
	}
}
