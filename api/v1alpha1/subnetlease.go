// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SubnetLeaseKind is the kind of a subnet lease.
const SubnetLeaseKind = "SubnetLease"

// SubnetLease says that a node holds a block of pod addresses, and how its
// peers reach it. It is named after its subnet (10-42-3-0-24), so that creating
// it is the claim. Its owner reference is the Node: when that is deleted, the
// lease goes too.
//
// Nodes write leases; an operator only deletes those of a node that will never
// come back.
//
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !isCIDR(self.spec.subnet) || (cidr(self.spec.subnet).ip().family() == 4 ? [self.metadata.name.replace('-', '.', 3).replace('-', '/')] : [self.metadata.name.replace('-', ':', 7).replace('-', '/')]).all(s, isCIDR(s) && cidr(s) == cidr(self.spec.subnet)) && self.metadata.name.split('-', 9).all(n, n == '0' || n.size() > 0 && !n.startsWith('0'))",messageExpression="'a lease is named after its subnet, as 10-42-3-0-24 is after 10.42.3.0/24 and fd00-42-0-3-0-0-0-0-64 after fd00:42:0:3::/64; this one is of %s'.format([self.spec.subnet])",fieldPath=".metadata",optionalOldSelf=true
// +kubebuilder:resource:scope=Cluster,path=subnetleases,singular=subnetlease
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=`.spec.subnet`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.nodeAddresses`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.pod`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SubnetLease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SubnetLeaseSpec `json:"spec"`
}

// SubnetLeaseSpec is what peers need to know of a block.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.subnet) || has(self.pod) && self.pod.size() > 0 || !(cidr(self.subnet).prefixLength() == (cidr(self.subnet).ip().family() == 4 ? 32 : 128))",message="a lease of a single address says whose it is: \"namespace/name\" of the pod",fieldPath=".pod",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.subnet) || !has(self.pod) || self.pod.size() == 0 || cidr(self.subnet).prefixLength() == (cidr(self.subnet).ip().family() == 4 ? 32 : 128)",messageExpression="'the lease of a pod is of a single address; want a /%d'.format([cidr(self.subnet).ip().family() == 4 ? 32 : 128])",fieldPath=".subnet"
type SubnetLeaseSpec struct {
	// Subnet is the block, such as 10.42.3.0/24.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is the name of the lease and cannot change"
	Subnet Subnet `json:"subnet"`
	// Pool that the block is from. Empty: it is one of the Node's podCIDRs.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="want the name of an IPPool: lower-case letters, digits, '-' and '.', a letter or digit at both ends"
	Pool string `json:"pool,omitempty"`
	// NodeName is the node that holds the block.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="want the name of a Node: lower-case letters, digits, '-' and '.', a letter or digit at both ends"
	NodeName string `json:"nodeName"`
	// NodeAddresses of the node on the network between the nodes; at most one
	// per family.
	// +optional
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:XValidation:rule="[4, 6].all(f, self.filter(a, isIP(a) && ip(a).family() == f).size() <= 1)",message="want at most one address per family"
	NodeAddresses []Address `json:"nodeAddresses,omitempty"`
	// VXLAN is the node's end of VXLAN tunnels. Empty: it has none.
	// +optional
	VXLAN *VXLANEndpoint `json:"vxlan,omitempty"`
	// Pod has the lease to itself, as "namespace/name": then Subnet is one
	// address, which the pod asked for or keeps, and which may be inside of
	// another node's block. Empty: the lease is of a block.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') && self.size() - self.indexOf('/') <= 254",message="want namespace and name of a pod, such as \"shop/web-0\""
	Pod string `json:"pod,omitempty"`
}

// VXLANEndpoint is a node's end of VXLAN tunnels (RFC 7348).
//
// +kubebuilder:object:generate=true
type VXLANEndpoint struct {
	// MAC of the VXLAN device, a unicast EUI-48 address: 02:01:02:03:04:05.
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$') && self != '00:00:00:00:00:00'",message="want a unicast hardware address such as 02:57:01:02:03:04"
	MAC string `json:"mac"`
	// VNI is the VXLAN network identifier.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	VNI int32 `json:"vni"`
	// Port is the UDP port on which the node takes VXLAN packets.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// SubnetLeaseList is a list of leases.
//
// +kubebuilder:object:root=true
type SubnetLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SubnetLease `json:"items"`
}
