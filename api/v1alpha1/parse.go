// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"weft.dev/weft/internal/core/cluster"
)

const wantCIDR = "want a CIDR such as 10.42.0.0/16 or fd00:42::/48"

// parseSubnet reads a CIDR that pods can have addresses of.
func parseSubnet(path *field.Path, text string) (netip.Prefix, *field.Error) {
	if text == "" {
		return netip.Prefix{}, field.Required(path, wantCIDR)
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, field.Invalid(path, text, wantCIDR)
	}
	if err := cluster.UsableSubnet(p); err != nil {
		return netip.Prefix{}, field.Invalid(path, text, err.Error())
	}
	return p, nil
}

// parseNodeAddress reads an address by which other nodes reach a node.
func parseNodeAddress(path *field.Path, text string) (netip.Addr, *field.Error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, field.Invalid(path, text, "want an address such as 192.0.2.10 or 2001:db8::10")
	}
	if err := cluster.UsableAddress(a); err != nil {
		return netip.Addr{}, field.Invalid(path, text, err.Error())
	}
	return a, nil
}

// ParseReserved reads an entry of IPPoolSpec.Reserved: a CIDR without host bits
// or a single address.
func ParseReserved(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("want a CIDR such as 10.42.0.0/28, or an address")
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("has host bits set; it should be %s or %s", p.Masked(), p.Addr())
	}
	return p, nil
}

// validateName checks the name of a cluster-scoped object or a reference to
// one.
func validateName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for _, reason := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(path, name, reason))
	}
	return errs
}

// familyName is for messages.
func familyName(is4 bool) string {
	if is4 {
		return "IPv4"
	}
	return "IPv6"
}
