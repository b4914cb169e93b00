// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"strings"
	"testing"

	"weft.dev/weft/test/apiserver"
)

// The definitions hold on a real server, and so does what they refuse.
func TestDefinitions(t *testing.T) {
	s := apiserver.Start(t)
	s.ApplyCRDs(apiserver.Repository(t, "deploy/chart/crds"))
	const group = "apiVersion: weft.dev/v1alpha1\n"
	s.Apply(group + "kind: IPPool\nmetadata: {name: default}\nspec: {ipv4: {cidr: 10.42.0.0/16}}")
	s.Apply(group + "kind: SubnetLease\nmetadata: {name: 10-42-3-0-24}\nspec: {subnet: 10.42.3.0/24, nodeName: a, nodeAddresses: [192.0.2.1]}")
	s.Apply(group + "kind: AddressClaim\nmetadata: {name: web-0, namespace: default}\nspec: {ipv4: 10.42.3.7}")
	if got := s.MustKubectl("", "get", "ippools", "default", "-o", "jsonpath={.spec.masquerade}"); got != "true" {
		t.Errorf("the default of masquerade is %q", got)
	}
	for name, c := range map[string]struct{ manifest, want string }{
		"pool without range":   {"kind: IPPool\nmetadata: {name: a}\nspec: {}", "want ipv4, ipv6 or both"},
		"huge block size":      {"kind: IPPool\nmetadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8, blockSize: 127}}", "should be less than or equal to 126"},
		"lease without node":   {"kind: SubnetLease\nmetadata: {name: a}\nspec: {subnet: 10.42.3.0/24}", "spec.nodeName: Required"},
		"lease of other block": {"kind: SubnetLease\nmetadata: {name: 10-42-3-0-24}\nspec: {subnet: 10.42.4.0/24, nodeName: a}", "is the name of the lease and cannot change"},
		"claim of nothing":     {"kind: AddressClaim\nmetadata: {name: a, namespace: default}\nspec: {}", "want ipv4, ipv6 or both"},
		"claim that changes":   {"kind: AddressClaim\nmetadata: {name: web-0, namespace: default}\nspec: {ipv4: 10.42.3.8}", "a claim does not change"},
		"unknown field":        {"kind: IPPool\nmetadata: {name: a}\nspec: {ipv4: {cidr: 10.0.0.0/8}, onrequest: true}", "onrequest"},
	} {
		out, err := s.Kubectl(group+c.manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s\nwant %q", name, err, out, c.want)
		}
	}
}
