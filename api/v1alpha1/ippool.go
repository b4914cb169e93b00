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
type IPPoolSpec struct {
	// IPv4 range. At least one of ipv4 and ipv6 is wanted.
	// +optional
	IPv4 *IPPoolRange `json:"ipv4,omitempty"`
	// IPv6 range. A node takes a block of each family that there is.
	// +optional
	IPv6 *IPPoolRange `json:"ipv6,omitempty"`
	// Reserved is given to no pod but one that asks for the very address by the
	// annotation weft.dev/ipv4 or weft.dev/ipv6: CIDRs or single addresses
	// inside a range of the pool.
	// +optional
	Reserved []string `json:"reserved,omitempty"`
	// Masquerade: what leaves the pools gets the node's address. Default: true.
	// +optional
	// +kubebuilder:default=true
	Masquerade *bool `json:"masquerade,omitempty"`
	// NodeSelector says which nodes may lease from the pool. Default: all.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// OnRequest: only pods that ask for the pool by the annotation
	// weft.dev/pool, theirs or their namespace's, get its addresses.
	// +optional
	OnRequest bool `json:"onRequest,omitempty"`
}

// IPPoolRange is a pool's address space in one family.
//
// +kubebuilder:object:generate=true
type IPPoolRange struct {
	// CIDR of the range, such as 10.42.0.0/16.
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`
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
