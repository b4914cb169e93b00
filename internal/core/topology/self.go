// SPDX-License-Identifier: Apache-2.0

package topology

import "net/netip"

// Backend says how packets travel between nodes.
type Backend string

// Backends.
const (
	Auto   Backend = "auto"   // native on a common segment, else VXLAN; decided per lease
	VXLAN  Backend = "vxlan"  // VXLAN to every peer that has a VTEP
	Native Backend = "native" // routes by the peer's address on a common segment only
)

// Self is this node's place in the underlay.
type Self struct {
	Node     string
	Underlay []Underlay // at most one per family, IPv4 first
	Backend  Backend
	VNI      uint32 // 1 to 16777215
	Port     uint16
	MTU      int  // bytes, of VXLAN devices; 0: the underlay's minus the overhead
	Checksum bool // see Link.Checksum
}

// Underlay is how this node is connected in one family.
type Underlay struct {
	Addr netip.Prefix // this node's address, with the length of the on-link prefix
	Dev  string
	MTU  int // bytes
}

// Way is how a lease's pods are reached.
type Way string

// Ways.
const (
	Local       Way = "local" // this node's own lease: by the host routes of its pods
	ByRoute     Way = "native"
	ByVXLAN     Way = "vxlan"
	Unreachable Way = "unreachable" // rejected, or no way leads there
)

// Reach says how one lease is reached; for views.
type Reach struct {
	Lease  string // its name
	Node   string
	Subnet netip.Prefix
	Way    Way
	Via    netip.Addr // the underlay address of the peer; zero for Local and Unreachable
	Dev    string
	Reason string // of Unreachable
}
