// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const goodClaim = `
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata:
  name: web-0
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: web, uid: s1}]
spec:
  ipv4: 10.42.3.7
  ipv6: fd00:42::7
`

func parseClaim(t *testing.T, text string) *AddressClaim {
	t.Helper()
	var c AddressClaim
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestGoodClaims(t *testing.T) {
	for name, text := range map[string]string{
		"everything": goodClaim,
		"IPv4 only":  strings.Replace(goodClaim, "ipv6: fd00:42::7", "", 1),
		"IPv6 only":  strings.Replace(goodClaim, "ipv4: 10.42.3.7", "", 1),
		"no owner":   "metadata: {namespace: a, name: b.c}\nspec: {ipv4: 10.42.3.7}",
	} {
		t.Run(name, func(t *testing.T) {
			if errs := parseClaim(t, text).Validate(); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

func TestClaimMistakes(t *testing.T) {
	cases := map[string]struct{ from, to, field, want string }{
		"no name":          {"name: web-0", "labels: {}", "metadata.name", "Required"},
		"bad name":         {"name: web-0", "name: Web", "metadata.name", "RFC 1123"},
		"no namespace":     {"namespace: shop", "labels: {}", "metadata.namespace", "Required"},
		"bad namespace":    {"namespace: shop", "namespace: a.b", "metadata.namespace", "must not contain dots"},
		"no address":       {"ipv4: 10.42.3.7\n  ipv6: fd00:42::7", "{}", "spec", "want ipv4, ipv6 or both"},
		"garbage":          {"10.42.3.7", "mine", "spec.ipv4", "want an IPv4 address such as 10.42.3.7"},
		"IPv6 as ipv4":     {"10.42.3.7", "'fd00::1'", "spec.ipv4", "want an IPv4 address"},
		"IPv4 as ipv6":     {"fd00:42::7", "10.42.3.8", "spec.ipv6", "want an IPv6 address such as fd00:42::7"},
		"prefix":           {"10.42.3.7", "10.42.3.7/32", "spec.ipv4", "want an IPv4 address"},
		"upper case":       {"fd00:42::7", "FD00:42::7", "spec.ipv6", "write fd00:42::7"},
		"not shortened":    {"fd00:42::7", "'fd00:42:0:0::7'", "spec.ipv6", "write fd00:42::7"},
		"loopback":         {"10.42.3.7", "127.0.0.1", "spec.ipv4", "is loopback"},
		"link-local":       {"fd00:42::7", "fe80::7", "spec.ipv6", "is link-local"},
		"IPv4-mapped":      {"fd00:42::7", "'::ffff:10.0.0.1'", "spec.ipv6", "is IPv4-mapped"},
		"zone":             {"fd00:42::7", "fd00:42::7%eth0", "spec.ipv6", "zone"},
		"broadcast":        {"10.42.3.7", "255.255.255.255", "spec.ipv4", "is broadcast"},
		"unspecified IPv6": {"fd00:42::7", "'::'", "spec.ipv6", "is unspecified"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(goodClaim, c.from, c.to, 1)
			if text == goodClaim {
				t.Fatal("the case changes nothing")
			}
			wantOne(t, parseClaim(t, text).Validate(), c.field, c.want)
		})
	}
}
