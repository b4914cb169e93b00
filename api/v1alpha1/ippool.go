// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IPPoolKind is the kind of an address pool.
const IPPoolKind = "IPPool"

// IPPool is an address space out of which nodes lease blocks for their pods.
// No two pools may overlap; of two that do, the older one is used.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=ippools,singular=ippool
// +kubebuilder:printcolumn:name="IPv4",type=string,JSONPath=`.spec.ipv4.cidr`
// +kubebuilder:printcolumn:name="IPv4 block",type=integer,JSONPath=`.spec.ipv4.blockSize`
// +kubebuilder:printcolumn:name="IPv6",type=string,JSONPath=`.spec.ipv6.cidr`
// +kubebuilder:printcolumn:name="IPv6 block",type=integer,JSONPath=`.spec.ipv6.blockSize`
// +kubebuilder:printcolumn:name="On request",type=boolean,JSONPath=`.spec.onRequest`,priority=1
// +kubebuilder:printcolumn:name="Masquerade",type=boolean,JSONPath=`.spec.masquerade`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPPoolSpec `json:"spec"`
}

// IPPoolSpec is what an operator wants of a pool.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="has(self.ipv4) || has(self.ipv6)",message="want ipv4, ipv6 or both"
// +kubebuilder:validation:XValidation:rule="!has(self.reserved) || !(has(self.ipv4) || has(self.ipv6)) || self.reserved.all(r, !(isIP(r) || isCIDR(r)) || ((has(self.ipv4) ? [self.ipv4.cidr] : []) + (has(self.ipv6) ? [self.ipv6.cidr] : [])).exists(c, !isCIDR(c) || (isIP(r) ? cidr(c).containsIP(r) : cidr(c).containsCIDR(r))))",messageExpression="'%s is not inside a range of the pool'.format([self.reserved.filter(r, (isIP(r) || isCIDR(r)) && !((has(self.ipv4) ? [self.ipv4.cidr] : []) + (has(self.ipv6) ? [self.ipv6.cidr] : [])).exists(c, !isCIDR(c) || (isIP(r) ? cidr(c).containsIP(r) : cidr(c).containsCIDR(r))))[0]])",fieldPath=".reserved"
type IPPoolSpec struct {
	// IPv4 range. At least one of ipv4 and ipv6 is wanted.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 4",message="want an IPv4 CIDR such as 10.42.0.0/16",fieldPath=".cidr"
	IPv4 *IPPoolRange `json:"ipv4,omitempty"`
	// IPv6 range. A node takes a block of each family that there is.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 6",message="want an IPv6 CIDR such as fd00:42::/48",fieldPath=".cidr"
	IPv6 *IPPoolRange `json:"ipv6,omitempty"`
	// Reserved is given to no pod but one that asks for the very address by the
	// annotation weft.dev/ipv4 or weft.dev/ipv6: CIDRs or single addresses
	// inside a range of the pool.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self)",message="want a CIDR such as 10.42.0.0/28, or an address"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self).masked() == cidr(self)",messageExpression="'has host bits set; it should be %s or %s'.format([string(cidr(self).masked()), string(cidr(self).ip())])"
	Reserved []string `json:"reserved,omitempty"`
	// Masquerade: what leaves the pools gets the node's address. Default: true.
	// +optional
	// +kubebuilder:default=true
	Masquerade *bool `json:"masquerade,omitempty"`
	// NodeSelector says which nodes may lease from the pool. Default: all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="want one of the operators In, NotIn, Exists and DoesNotExist",fieldPath=".matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.operator in ['In', 'NotIn']) || has(e.values) && size(e.values) > 0)",message="want values for the operators In and NotIn",fieldPath=".matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.operator in ['Exists', 'DoesNotExist']) || !has(e.values) || size(e.values) == 0)",message="want no values for the operators Exists and DoesNotExist",fieldPath=".matchExpressions"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// OnRequest: only pods that ask for the pool by the annotation
	// weft.dev/pool, theirs or their namespace's, get its addresses.
	// +optional
	OnRequest bool `json:"onRequest,omitempty"`
}

// IPPoolRange is a pool's address space in one family.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).prefixLength() <= (cidr(self.cidr).ip().family() == 4 ? 30 : 126)",messageExpression="'is too small for pods; want /%d or larger'.format([cidr(self.cidr).ip().family() == 4 ? 30 : 126])",fieldPath=".cidr"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !has(self.blockSize) || self.blockSize <= (cidr(self.cidr).ip().family() == 4 ? 30 : 126)",messageExpression="'a block of /%d is too small for pods; want a prefix length of at most %d'.format([self.blockSize, cidr(self.cidr).ip().family() == 4 ? 30 : 126])",fieldPath=".blockSize"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !has(self.blockSize) || self.blockSize >= cidr(self.cidr).prefixLength()",messageExpression="'a block of /%d is larger than the range %s; want a prefix length of at least %d'.format([dyn(self.blockSize), self.cidr, cidr(self.cidr).prefixLength()])",fieldPath=".blockSize"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || (has(self.blockSize) ? self.blockSize : cidr(self.cidr).ip().family() == 4 ? 24 : 64) <= cidr(self.cidr).prefixLength() + 24",messageExpression="'there would be more than 2^24 blocks of /%d in %s; want a prefix length of at most %d'.format([dyn(has(self.blockSize) ? self.blockSize : cidr(self.cidr).ip().family() == 4 ? 24 : 64), self.cidr, cidr(self.cidr).prefixLength() + 24])",fieldPath=".blockSize"
type IPPoolRange struct {
	// CIDR of the range, such as 10.42.0.0/16.
	CIDR Subnet `json:"cidr"`
	// BlockSize is the prefix length of the blocks that nodes lease; at least
	// the CIDR's, at most 30 (IPv4) or 126 (IPv6), at most 24 longer than the
	// CIDR's. Default: 24 (IPv4) or 64 (IPv6), or the CIDR's where that is longer.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=126
	BlockSize *int32 `json:"blockSize,omitempty"`
}

// IPPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPPool `json:"items"`
}

// Block sizes of a range that does not say one.
const (
	DefaultBlockSizeIPv4 = 24
	DefaultBlockSizeIPv6 = 64
)

// Default fills in what the pool does not say. A range whose CIDR cannot be
// read stays without a block size.
func (p *IPPool) Default() {
	p.Spec.IPv4.setDefault(DefaultBlockSizeIPv4)
	p.Spec.IPv6.setDefault(DefaultBlockSizeIPv6)
	if p.Spec.Masquerade == nil {
		yes := true
		p.Spec.Masquerade = &yes
	}
}

// InitialPool returns the pool that an installation begins with.
func InitialPool(spec IPPoolSpec) *IPPool {
	return &IPPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: APIVersion, Kind: IPPoolKind},
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       *spec.DeepCopy(),
	}
}

func (r *IPPoolRange) setDefault(size int32) {
	if r == nil {
		return
	}
	if cidr, err := netip.ParsePrefix(r.CIDR); err == nil {
		bits := r.blockSizeOr(size, cidr)
		r.BlockSize = &bits
	}
}

// blockSizeOr returns the block size, or the default of the family.
func (r *IPPoolRange) blockSizeOr(size int32, cidr netip.Prefix) int32 {
	if r.BlockSize != nil {
		return *r.BlockSize
	}
	return max(size, int32(cidr.Bits()))
}
