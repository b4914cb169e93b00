// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"net/netip"
)

// MAC is an EUI-48 hardware address. The zero value means "not set".
type MAC [6]byte

// HostMAC is the hardware address of every host end. One constant serves all,
// because the links are point-to-point: two of them never share a segment.
var HostMAC = MAC{0x02, 'W', 'E', 'F', 'T', 0x01}

// IsZero reports whether the address is not set.
func (m MAC) IsZero() bool { return m == MAC{} }

// String returns the colon form, "02:57:45:46:54:01".
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// LinkLocal returns the EUI-64 link-local address of RFC 4291, appendix A.
func (m MAC) LinkLocal() netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80,
		8: m[0] ^ 0x02, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}

// Pod says whom an attachment serves. All fields may be empty: CNI has users
// besides Kubernetes. They come from CNI_ARGS (K8S_POD_*).
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// String returns namespace/name, or "" where no pod is known.
func (p Pod) String() string {
	if p.Name == "" {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// Address is one address granted to an attachment.
type Address struct {
	Addr    netip.Addr   `json:"addr"`
	Subnet  netip.Prefix `json:"subnet"`           // the subnet it was granted from, masked
	Gateway netip.Addr   `json:"gateway,omitzero"` // zero: the plan uses the family's link-local default
}

// Route is one route inside the sandbox, with every field of CNI 1.1.0.
type Route struct {
	Dst      netip.Prefix `json:"dst"`
	Gateway  netip.Addr   `json:"gw,omitzero"`        // zero: the gateway of the attachment in this family
	MTU      int          `json:"mtu,omitempty"`      // bytes; 0: the link's
	AdvMSS   int          `json:"advmss,omitempty"`   // bytes; 0: derived by the kernel
	Priority int          `json:"priority,omitempty"` // metric; 0: the kernel's default
	Table    *int         `json:"table,omitempty"`    // nil: main (254); 0 is "unspec", which the kernel takes as main
	Scope    *int         `json:"scope,omitempty"`    // nil: global; 0 global, 253 link, 254 host
}

// Sysctl is one kernel parameter to set inside the sandbox's namespace.
type Sysctl struct {
	Key   string `json:"key"` // with dots: net.ipv4.conf.eth0.arp_filter
	Value string `json:"value"`
}

// Spec is what is wanted for one attachment.
type Spec struct {
	Key       Key
	Instance  string // which Weft on this host: the absolute state directory; goes into the alias
	Pod       Pod
	MAC       MAC // zero: derived from the key
	MTU       int // bytes, 68 to 65535
	Addresses []Address
	Routes    []Route
	Sysctls   []Sysctl
	Ports     []Port
	Limits    Limits
	// Rank is the place of this attachment among those of its container, from
	// 0. Two of them may want the same route: one without a priority of its
	// own yields to the attachment that came first.
	Rank int
}

// Neighbour is a link-layer address that is known beforehand, so that the first
// packet waits for no ARP or ND.
type Neighbour struct {
	Addr netip.Addr
	MAC  MAC
}

// Plan is every kernel object of one attachment.
//
// Undoing a plan is deleting the host end of the veth pair: the kernel removes
// the other end, all addresses, routes and neighbours with it. Beside it there
// are only the ports of the host and the interface named Shaper, both of which
// are found by HostIfname.
type Plan struct {
	HostIfname string // in the host's namespace
	Ifname     string // in the sandbox
	Alias      string // of the host end; the other half of our mark
	HostMAC    MAC
	MAC        MAC
	MTU        int

	Addresses      []netip.Prefix // on Ifname, full length; for IPv6 also the link-local one
	Routes         []Route        // in the sandbox; Gateway set, and then always on-link, unless scope is link or host
	Neighbours     []Neighbour    // in the sandbox: the gateways
	HostRoutes     []netip.Prefix // on the host, to HostIfname, scope link
	HostNeighbours []Neighbour    // on the host: the pod's addresses
	ProxyARP       bool           // the host end answers ARP for everything: a link-scope IPv4 route wants it
	Sysctls        []Sysctl

	Ports         []Mapping // ports of the host that lead to the pod
	ToPod, ToHost Bucket    // limits of what the pod receives and sends
	Shaper        string    // the interface of kind ifb in which what the pod sends waits; "": ToHost is zero
}

// HasIPv6 reports whether the sandbox needs IPv6 on its interface.
func (p Plan) HasIPv6() bool {
	for _, a := range p.Addresses {
		if a.Addr().Is6() {
			return true
		}
	}
	return false
}
