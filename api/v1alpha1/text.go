// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The rules at these types are for the API server: it refuses what Validate
// refuses, when it is written. Validate remains, for manifests in a directory and
// for what is stored already. A rule that reads a text expects that it can be
// read: another one says so if it cannot.
//
// The rule of a whole object (SubnetLease) is for its creation only. Otherwise not
// even the metadata of a wrong one that is stored could change, and what waits for
// its finalizers could never be deleted.

// Subnet is a CIDR that pods can have addresses of, such as 10.42.0.0/16: without
// host bits, and without addresses that have a meaning of their own.
//
// CEL cannot write the IPv4-mapped space down, and isCIDR refuses what is inside.
// What is around it contains ::fffe:0:0/95, too.
//
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="want a CIDR such as 10.42.0.0/16 or fd00:42::/48"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).masked() == cidr(self)",messageExpression="'has host bits set; it should be %s'.format([string(cidr(self).masked())])"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/128', '::1/128', '::fffe:0:0/95', 'fe80::/10', 'ff00::/8'].all(s, !cidr(self).containsCIDR(s) && (s == '::fffe:0:0/95' || !cidr(s).containsCIDR(self)))",message="has unspecified, loopback, link-local, multicast, broadcast or IPv4-mapped addresses (0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255, ::, ::1, fe80::/10, ff00::/8, ::ffff:0:0/96)"
type Subnet = string

// Address is one that pods and nodes can have, such as 10.42.3.7.
//
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="self.size() == 0 || isIP(self)",message="want an address such as 192.0.2.10 or 2001:db8::10, without a zone and not IPv4-mapped"
// +kubebuilder:validation:XValidation:rule="!isIP(self) || ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/128', '::1/128', 'fe80::/10', 'ff00::/8'].all(s, !cidr(s).containsIP(self))",message="is unspecified, loopback, link-local, multicast or broadcast"
type Address = string
