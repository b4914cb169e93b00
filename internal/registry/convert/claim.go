// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
)

// Claim converts an AddressClaim. Of several owners the first is taken.
func Claim(c *v1alpha1.AddressClaim) (cluster.Claim, error) {
	if err := c.Validate().ToAggregate(); err != nil {
		return cluster.Claim{}, err
	}
	claim := cluster.Claim{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}
	for _, text := range []string{c.Spec.IPv4, c.Spec.IPv6} {
		if text != "" {
			claim.Addresses = append(claim.Addresses, netip.MustParseAddr(text))
		}
	}
	if len(c.OwnerReferences) > 0 {
		claim.Owner = owner(c.OwnerReferences[0])
	}
	return claim, nil
}

// AddressClaim returns the complete manifest of a claim.
func AddressClaim(c cluster.Claim) *v1alpha1.AddressClaim {
	object := &v1alpha1.AddressClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.AddressClaimKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID)},
	}
	if o := c.Owner; o != (cluster.Owner{}) {
		object.OwnerReferences = []metav1.OwnerReference{{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: types.UID(o.UID)}}
	}
	for _, a := range c.Addresses {
		if a.Is4() {
			object.Spec.IPv4 = a.String()
		} else {
			object.Spec.IPv6 = a.String()
		}
	}
	return object
}
