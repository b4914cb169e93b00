// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxBlockBits bounds the blocks of one range to 2^24: what a node searches
// for a free one stays small.
const maxBlockBits = 24

// maxReserved bounds what the API server has to check of one pool.
const maxReserved = 1024

// Validate returns everything that is wrong with the pool, whether its defaults
// are filled in or not. What pools can get wrong together is not judged here.
func (p *IPPool) Validate() field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateName(field.NewPath("metadata", "name"), p.Name)
	if p.Spec.IPv4 == nil && p.Spec.IPv6 == nil {
		errs = append(errs, field.Required(spec, "want ipv4, ipv6 or both"))
	}
	var ranges []netip.Prefix // zero: one that is wrong
	for _, family := range []struct {
		name  string
		is4   bool
		given *IPPoolRange
	}{{"ipv4", true, p.Spec.IPv4}, {"ipv6", false, p.Spec.IPv6}} {
		if family.given == nil {
			continue
		}
		cidr, wrong := family.given.validate(spec.Child(family.name), family.is4)
		errs = append(errs, wrong...)
		ranges = append(ranges, cidr)
	}
	errs = append(errs, p.validateReserved(spec.Child("reserved"), ranges)...)
	wrong := metav1validation.ValidateLabelSelector(p.Spec.NodeSelector,
		metav1validation.LabelSelectorValidationOptions{}, spec.Child("nodeSelector"))
	// It goes through a map: the same pool must always get the same message.
	slices.SortFunc(wrong, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return append(errs, wrong...)
}

// validate returns the CIDR, or the zero value if that is wrong.
func (r *IPPoolRange) validate(path *field.Path, is4 bool) (netip.Prefix, field.ErrorList) {
	// A block needs addresses besides the network's, the gateway's and, in
	// IPv4, the broadcast address.
	longest, normal := 126, int32(DefaultBlockSizeIPv6)
	if is4 {
		longest, normal = 30, DefaultBlockSizeIPv4
	}
	var errs field.ErrorList
	cidr, wrong := parseSubnet(path.Child("cidr"), r.CIDR)
	switch {
	case wrong != nil:
	case cidr.Addr().Is4() != is4:
		wrong = field.Invalid(path.Child("cidr"), r.CIDR, "want an "+familyName(is4)+" CIDR")
	case cidr.Bits() > longest:
		wrong = field.Invalid(path.Child("cidr"), r.CIDR, fmt.Sprintf("is too small for pods; want /%d or larger", longest))
	}
	if wrong != nil {
		errs = append(errs, wrong)
		cidr = netip.Prefix{}
	}
	if r.BlockSize == nil && wrong != nil {
		return cidr, errs
	}
	size := r.blockSizeOr(normal, cidr)
	if reason := wrongBlockSize(int(size), cidr, longest); reason != "" {
		errs = append(errs, field.Invalid(path.Child("blockSize"), size, reason))
	}
	return cidr, errs
}

// wrongBlockSize says what is wrong with a block size; "" if nothing is. Of a
// CIDR that is wrong (the zero value) it expects nothing.
func wrongBlockSize(size int, cidr netip.Prefix, longest int) string {
	shortest := 1
	if cidr.IsValid() {
		shortest = cidr.Bits()
		longest = min(longest, shortest+maxBlockBits)
	}
	want := fmt.Sprintf("want a prefix length of %d to %d", shortest, longest)
	switch {
	case size >= shortest && size <= longest:
		return ""
	case size < 1 || size > 128 || !cidr.IsValid():
		return want
	case size < shortest:
		return fmt.Sprintf("a block of /%d is larger than the range %s; %s", size, cidr, want)
	case size > shortest+maxBlockBits:
		return fmt.Sprintf("there would be more than 2^%d blocks of /%d in %s; %s", maxBlockBits, size, cidr, want)
	}
	return fmt.Sprintf("a block of /%d is too small for pods; %s", size, want)
}

func (p *IPPool) validateReserved(path *field.Path, ranges []netip.Prefix) field.ErrorList {
	if n := len(p.Spec.Reserved); n > maxReserved {
		return field.ErrorList{field.TooMany(path, n, maxReserved)}
	}
	var errs field.ErrorList
	for i, text := range p.Spec.Reserved {
		r, err := ParseReserved(text)
		if err != nil {
			errs = append(errs, field.Invalid(path.Index(i), text, err.Error()))
			continue
		}
		// Of a range that is wrong nobody knows what is inside.
		inside := func(cidr netip.Prefix) bool {
			return !cidr.IsValid() || cidr.Bits() <= r.Bits() && cidr.Contains(r.Addr())
		}
		if len(ranges) > 0 && !slices.ContainsFunc(ranges, inside) {
			errs = append(errs, field.Invalid(path.Index(i), text, "is not inside "+joinPrefixes(ranges)))
		}
	}
	return errs
}

func joinPrefixes(list []netip.Prefix) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.String()
	}
	return strings.Join(texts, " or ")
}
