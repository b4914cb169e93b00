// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
)

const claimManifest = `apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata:
  name: web-0
  namespace: shop
  ownerReferences:
  - apiVersion: apps/v1
    kind: StatefulSet
    name: web
    uid: s1
  uid: c1
spec:
  ipv4: 10.42.3.7
  ipv6: fd00:42::7
`

func TestClaim(t *testing.T) {
	want := cluster.Claim{
		Namespace: "shop", Name: "web-0", UID: "c1", Addresses: addrs("10.42.3.7", "fd00:42::7"),
		Owner: cluster.Owner{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "s1"},
	}
	got, err := Claim(decode[v1alpha1.AddressClaim](t, claimManifest))
	if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	text, err := yaml.Marshal(AddressClaim(want))
	if diff := cmp.Diff(claimManifest, string(text)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestWrongClaimIsRefusedWithEveryReason(t *testing.T) {
	got, err := Claim(decode[v1alpha1.AddressClaim](t, "spec: {ipv4: x, ipv6: 'fe80::1'}"))
	wantError(t, err, "metadata.name", "metadata.namespace", "spec.ipv4", "spec.ipv6")
	if diff := cmp.Diff(cluster.Claim{}, got, byValue); diff != "" {
		t.Errorf("there is a value besides the error:\n%s", diff)
	}
}

func dnsName(name string) bool { return validation.IsDNS1123Subdomain(name) == nil }

// A claim survives the way through its manifest.
func TestClaimRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := cluster.Claim{
			Namespace: rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?`).Draw(t, "namespace"),
			Name:      rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?`).Filter(dnsName).Draw(t, "name"),
			UID:       rapid.SampledFrom([]string{"", "c1"}).Draw(t, "uid"),
		}
		families := rapid.SampledFrom([][]bool{{true}, {false}, {true, false}}).Draw(t, "families")
		for _, is4 := range families {
			address := rapid.Custom(func(t *rapid.T) netip.Addr { return drawAddress(t, is4) })
			want.Addresses = append(want.Addresses, address.Filter(func(a netip.Addr) bool { return cluster.UsableAddress(a) == nil }).Draw(t, "address"))
		}
		if rapid.Bool().Draw(t, "has an owner") {
			want.Owner = cluster.Owner{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "s1"}
		}
		text, err := yaml.Marshal(AddressClaim(want))
		if err != nil {
			t.Fatal(err)
		}
		var object v1alpha1.AddressClaim
		if err := yaml.UnmarshalStrict(text, &object); err != nil {
			t.Fatal(err)
		}
		got, err := Claim(&object)
		if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
			t.Errorf("%v\n%s\n%s", err, diff, text)
		}
	})
}

// Whatever a manifest holds is refused or understood; what is understood is
// written again as it was.
func FuzzClaim(f *testing.F) {
	f.Add([]byte(claimManifest))
	f.Add([]byte("metadata: {namespace: a, name: b}\nspec: {ipv6: 'FD00::1'}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var object v1alpha1.AddressClaim
		if yaml.UnmarshalStrict(raw, &object) != nil {
			return
		}
		claim, err := Claim(&object)
		if err != nil {
			return
		}
		written := AddressClaim(claim)
		again, err := Claim(written)
		if diff := cmp.Diff(claim, again, byValue); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if written.Spec != object.Spec {
			t.Errorf("%+v became %+v: an address has two spellings", object.Spec, written.Spec)
		}
	})
}
