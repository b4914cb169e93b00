// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressClaimKind is the kind of an address claim.
const AddressClaimKind = "AddressClaim"

// AddressClaim says that the pod of its namespace and name keeps its addresses
// (annotation weft.dev/sticky: "true"): whoever runs under that name gets them,
// on whichever node of the pool, and nobody else does. Its owner reference is
// the pod's controller, such as a StatefulSet: when that is deleted, the claim
// goes too.
//
// Nodes write claims; an operator deletes one to give its addresses back.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=addressclaims,singular=addressclaim
// +kubebuilder:printcolumn:name="IPv4",type=string,JSONPath=`.spec.ipv4`
// +kubebuilder:printcolumn:name="IPv6",type=string,JSONPath=`.spec.ipv6`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddressClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AddressClaimSpec `json:"spec"`
}

// AddressClaimSpec has what is kept. At least one address.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="has(self.ipv4) && self.ipv4.size() > 0 || has(self.ipv6) && self.ipv6.size() > 0",message="want ipv4, ipv6 or both"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a claim does not change; delete it"
type AddressClaimSpec struct {
	// IPv4 address, such as 10.42.3.7.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).family() == 4",message="want an IPv4 address such as 10.42.3.7"
	IPv4 Address `json:"ipv4,omitempty"`
	// IPv6 address, such as fd00:42::7.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).family() == 6",message="want an IPv6 address such as fd00:42::7"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip.isCanonical(self)",messageExpression="'an address has one spelling here; write %s'.format([string(ip(self))])"
	IPv6 Address `json:"ipv6,omitempty"`
}

// AddressClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type AddressClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressClaim `json:"items"`
}
