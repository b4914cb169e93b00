// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"weft.dev/weft/internal/core/cluster"
)

// Validate returns everything that is wrong with the claim by itself.
func (c *AddressClaim) Validate() field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	errs := validateNamespace(meta.Child("namespace"), c.Namespace)
	errs = append(errs, validateName(meta.Child("name"), c.Name)...)
	if c.Spec.IPv4 == "" && c.Spec.IPv6 == "" {
		return append(errs, field.Required(spec, "want ipv4, ipv6 or both"))
	}
	errs = append(errs, validateKept(spec.Child("ipv4"), c.Spec.IPv4, true)...)
	return append(errs, validateKept(spec.Child("ipv6"), c.Spec.IPv6, false)...)
}

// validateKept checks an address that a pod keeps; there need not be one.
func validateKept(path *field.Path, text string, is4 bool) field.ErrorList {
	if text == "" {
		return nil
	}
	a, err := netip.ParseAddr(text)
	reason := ""
	switch {
	case err != nil || a.Is4() != is4:
		reason = "want an " + familyName(is4) + " address such as " + exampleAddress(is4)
	case a.String() != text:
		reason = "an address has one spelling here; write " + a.String()
	default:
		err = cluster.UsableAddress(a)
		if err == nil {
			return nil
		}
		reason = err.Error()
	}
	return field.ErrorList{field.Invalid(path, text, reason)}
}

func exampleAddress(is4 bool) string {
	if is4 {
		return "10.42.3.7"
	}
	return "fd00:42::7"
}

func validateNamespace(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for _, reason := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(path, name, reason))
	}
	return errs
}
