// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"weft.dev/weft/internal/core/cluster"
)

// Validate returns everything that is wrong with the lease by itself.
func (l *SubnetLease) Validate() field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	subnet, wrong := parseSubnet(spec.Child("subnet"), l.Spec.Subnet)
	if wrong != nil {
		errs = append(errs, wrong)
	} else if want := cluster.LeaseName(subnet); l.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), l.Name,
			"a lease is named after its subnet; the name for "+subnet.String()+" is "+want))
	}
	if wrong == nil {
		errs = append(errs, l.validatePod(spec, subnet)...)
	}
	if l.Spec.Pool != "" {
		errs = append(errs, validateName(spec.Child("pool"), l.Spec.Pool)...)
	}
	errs = append(errs, validateName(spec.Child("nodeName"), l.Spec.NodeName)...)
	errs = append(errs, l.validateOwner()...)
	errs = append(errs, l.validateAddresses(spec.Child("nodeAddresses"))...)
	if l.Spec.VXLAN != nil {
		errs = append(errs, l.Spec.VXLAN.validate(spec.Child("vxlan"))...)
	}
	return errs
}

// validatePod: a lease of one address is one pod's, and no other lease is.
func (l *SubnetLease) validatePod(spec *field.Path, subnet netip.Prefix) field.ErrorList {
	path, one := spec.Child("pod"), subnet.IsSingleIP()
	switch {
	case l.Spec.Pod == "" && one:
		return field.ErrorList{field.Required(path, "a lease of a single address says whose it is: \"namespace/name\" of the pod")}
	case l.Spec.Pod == "":
		return nil
	}
	namespace, name, found := strings.Cut(l.Spec.Pod, "/")
	if !found || validation.IsDNS1123Label(namespace) != nil || validation.IsDNS1123Subdomain(name) != nil {
		return field.ErrorList{field.Invalid(path, l.Spec.Pod, "want namespace and name of a pod, such as \"shop/web-0\"")}
	}
	if !one {
		return field.ErrorList{field.Invalid(spec.Child("subnet"), l.Spec.Subnet,
			fmt.Sprintf("the lease of a pod is of a single address; want a /%d", subnet.Addr().BitLen()))}
	}
	return nil
}

// validateOwner: a lease that another Node owns would go when that one goes.
func (l *SubnetLease) validateOwner() field.ErrorList {
	var errs field.ErrorList
	for i, o := range l.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Node" && o.Name != l.Spec.NodeName {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "ownerReferences").Index(i).Child("name"), o.Name,
				"is another Node than spec.nodeName"))
		}
	}
	return errs
}

func (l *SubnetLease) validateAddresses(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[bool]bool{}
	for i, text := range l.Spec.NodeAddresses {
		a, wrong := parseNodeAddress(path.Index(i), text)
		switch {
		case wrong != nil:
			errs = append(errs, wrong)
		case seen[a.Is4()]:
			errs = append(errs, field.Invalid(path.Index(i), text, "is the second "+familyName(a.Is4())+" address; want at most one per family"))
		default:
			seen[a.Is4()] = true
		}
	}
	return errs
}

func (v *VXLANEndpoint) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if mac, err := net.ParseMAC(v.MAC); err != nil || len(mac) != 6 || mac[0]&1 != 0 || [6]byte(mac) == [6]byte{} ||
		mac.String() != strings.ToLower(v.MAC) {
		errs = append(errs, field.Invalid(path.Child("mac"), v.MAC, "want a unicast hardware address such as 02:57:01:02:03:04"))
	}
	if v.VNI < 1 || v.VNI >= 1<<24 {
		errs = append(errs, field.Invalid(path.Child("vni"), v.VNI, "want 1 to 16777215"))
	}
	if v.Port < 1 || v.Port > 65535 {
		errs = append(errs, field.Invalid(path.Child("port"), v.Port, "want 1 to 65535"))
	}
	return errs
}
