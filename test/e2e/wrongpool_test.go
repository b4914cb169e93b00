// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever applies an IPPool that makes no sense is told at once what is wrong
// with it, and it is not there.
func testWrongPools(t *testing.T, s *suite) {
	t.Cleanup(func() {
		if out, err := s.Kubectl(context.Background(), "delete", "ippool", "wrong", "--ignore-not-found"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	for spec, says := range map[string]string{
		`{ipv4: {cidr: 10.42.0.1/16}}`:                                       `spec.ipv4.cidr: Invalid value: "10.42.0.1/16": has host bits set; it should be 10.42.0.0/16`,
		`{ipv4: {cidr: 10.42.0.0/16, blockSize: 31}}`:                        `spec.ipv4.blockSize: Invalid value`,
		`{ipv4: {cidr: 10.42.0.0/28, blockSize: 24}}`:                        `a block of /24 is larger than the range 10.42.0.0/28`,
		`{ipv6: {cidr: 10.42.0.0/16}}`:                                       `want an IPv6 CIDR such as fd00:42::/48`,
		`{ipv4: {cidr: 10.44.0.0/16}, reserved: [10.45.0.1]}`:                `10.45.0.1 is not inside `,
		`{ipv4: {cidr: 10.44.0.0/16}, nodeSelectors: {matchLabels: {a: b}}}`: `unknown field "spec.nodeSelectors"`,
	} {
		file := filepath.Join(t.TempDir(), "pool.yaml")
		pool := "{apiVersion: weft.dev/v1alpha1, kind: IPPool, metadata: {name: wrong}, spec: " + spec + "}"
		if err := os.WriteFile(file, []byte(pool), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Kubectl(t.Context(), "apply", "-f", file); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("kubectl apply of an IPPool with spec %s: %v\nwant a refusal with %q", spec, err, says)
		}
	}
	if out := s.kubectl(t, "get", "ippools", "-o", "name"); strings.Contains(out, "wrong") {
		t.Errorf("there are IPPools\n%s\nwant none that was refused", out)
	}
}
