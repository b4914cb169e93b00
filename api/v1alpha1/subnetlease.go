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
type SubnetLeaseSpec struct {
	// Subnet is the block, such as 10.42.3.0/24.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is the name of the lease and cannot change"
	Subnet string `json:"subnet"`
	// Pool that the block is from. Empty: it is one of the Node's podCIDRs.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool,omitempty"`
	// NodeName is the node that holds the block.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// NodeAddresses of the node on the network between the nodes; at most one
	// per family.
	// +optional
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	NodeAddresses []string `json:"nodeAddresses,omitempty"`
	// VXLAN is the node's end of VXLAN tunnels. Empty: it has none.
	// +optional
	VXLAN *VXLANEndpoint `json:"vxlan,omitempty"`
	// Pod has the lease to itself, as "namespace/name": then Subnet is one
	// address, which the pod asked for or keeps, and which may be inside of
	// another node's block. Empty: the lease is of a block.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Pod string `json:"pod,omitempty"`
}

// VXLANEndpoint is a node's end of VXLAN tunnels (RFC 7348).
//
// +kubebuilder:object:generate=true
type VXLANEndpoint struct {
	// MAC of the VXLAN device, a unicast EUI-48 address: 02:01:02:03:04:05.
	// +kubebuilder:validation:Pattern=`^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$`
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
