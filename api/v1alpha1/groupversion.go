// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds that live in the cluster.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme registers the kinds that live in the cluster.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &IPPool{}, &IPPoolList{}, &SubnetLease{}, &SubnetLeaseList{}, &AddressClaim{}, &AddressClaimList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
