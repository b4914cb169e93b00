// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"net"
	"net/netip"
	"slices"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
)

// Lease converts a SubnetLease.
func Lease(l *v1alpha1.SubnetLease) (cluster.Lease, error) {
	if err := l.Validate().ToAggregate(); err != nil {
		return cluster.Lease{}, err
	}
	lease := cluster.Lease{
		Subnet:  netip.MustParsePrefix(l.Spec.Subnet),
		UID:     string(l.UID),
		Version: shared(l.ResourceVersion),
		Created: created(l.CreationTimestamp),
		Pool:    shared(l.Spec.Pool),
		Node:    shared(l.Spec.NodeName),
		Pod:     l.Spec.Pod,
	}
	for _, o := range l.OwnerReferences {
		if isNode(o) {
			lease.NodeUID = shared(string(o.UID))
		}
	}
	for _, text := range l.Spec.NodeAddresses {
		lease.Addresses = append(lease.Addresses, netip.MustParseAddr(text))
	}
	slices.SortFunc(lease.Addresses, netip.Addr.Compare) // IPv4 first
	if v := l.Spec.VXLAN; v != nil {
		mac, _ := net.ParseMAC(v.MAC) // Validate has seen to it
		lease.VTEP = cluster.VTEP{MAC: attach.MAC(mac), VNI: uint32(v.VNI), Port: uint16(v.Port)}
	}
	return lease, nil
}

// SubnetLease returns the complete manifest of a lease. Without a NodeUID it
// has no owner: Kubernetes knows an owner by its UID only.
func SubnetLease(l cluster.Lease) *v1alpha1.SubnetLease {
	object := &v1alpha1.SubnetLease{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.SubnetLeaseKind},
		ObjectMeta: metav1.ObjectMeta{Name: l.Name(), UID: types.UID(l.UID), ResourceVersion: l.Version},
		Spec:       v1alpha1.SubnetLeaseSpec{Subnet: l.Subnet.String(), Pool: l.Pool, NodeName: l.Node, Pod: l.Pod},
	}
	if l.Created != 0 {
		object.CreationTimestamp = metav1.NewTime(time.Unix(0, l.Created).UTC().Truncate(time.Second))
	}
	if l.NodeUID != "" {
		object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.Node, UID: types.UID(l.NodeUID)}}
	}
	for _, a := range l.Addresses {
		object.Spec.NodeAddresses = append(object.Spec.NodeAddresses, a.String())
	}
	if l.VTEP != (cluster.VTEP{}) {
		object.Spec.VXLAN = &v1alpha1.VXLANEndpoint{MAC: l.VTEP.MAC.String(), VNI: int32(l.VTEP.VNI), Port: int32(l.VTEP.Port)}
	}
	return object
}

// shared returns the one copy of a string that many objects have.
func shared(s string) string { return unique.Make(s).Value() }

func isNode(o metav1.OwnerReference) bool { return o.APIVersion == "v1" && o.Kind == "Node" }
