// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"

	"weft.dev/weft/internal/core/attach"
)

// Node is a machine of the cluster.
type Node struct {
	Name      string
	UID       string
	Addresses []netip.Addr   // InternalIP, in the object's order
	PodCIDRs  []netip.Prefix // where the cluster assigns subnets itself; at most one per family
	Labels    map[string]string
	// Unmarked: the object says that the node's network is not ready (condition
	// NetworkUnavailable, or the taint weft.dev/agent-not-ready).
	Unmarked bool
}

// Pool is an address space out of which nodes lease blocks.
type Pool struct {
	Name       string
	Created    int64          // Unix time in nanoseconds; 0: unknown
	Ranges     []PoolRange    // one or two, of different families, IPv4 first
	Reserved   []netip.Prefix // never given to a pod; inside a range; ascending, disjoint
	Masquerade bool           // what leaves the pools gets the node's address
	Selector   Selector       // nodes that may lease from it
	OnRequest  bool           // only for pods that ask for it
}

// PoolRange is a pool's address space in one family.
type PoolRange struct {
	CIDR      netip.Prefix
	BlockBits int // prefix length of a block, at least CIDR's
}

// Lease says that a node holds a block. Its name is LeaseName(Subnet), so that
// creating it is the claim.
type Lease struct {
	Subnet  netip.Prefix
	UID     string // of the lease object
	Version string // the registry's; changes with every write
	Created int64  // Unix time in nanoseconds
	Pool    string // "": the subnet is one of the node's PodCIDRs
	Node    string
	NodeUID string
	// Addresses of the node on the underlay, at most one per family, IPv4 first.
	Addresses []netip.Addr
	VTEP      VTEP
	// Pod has the lease to itself, as "namespace/name": Subnet is one address,
	// which may be inside of another lease's block. "": the lease is of a block.
	Pod string
}

// Name returns the name of the lease object.
func (l Lease) Name() string { return LeaseName(l.Subnet) }

// VTEP is a node's end of VXLAN tunnels (RFC 7348); zero if it has none.
type VTEP struct {
	MAC  attach.MAC
	VNI  uint32
	Port uint16 // UDP
}

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Name        string
	Annotations map[string]string // those of weft.dev/
}

// Pod is a Kubernetes pod.
type Pod struct {
	Namespace, Name, UID string
	// Mirror is the configuration hash of a static pod, which its runtime has
	// as UID; "": it is no static pod.
	Mirror             string
	Node               string       // "" until it is scheduled
	Addresses          []netip.Addr // as its status says
	HostNetwork        bool
	Annotations        map[string]string // those of weft.dev/
	Controller         Owner             // zero: nobody made it
	Created, Scheduled int64             // Unix time in nanoseconds; 0: unknown, not yet
	Ready              int64             // since when; 0: it is not
}

// Key returns "namespace/name".
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// Owner is an object in the namespace of what it owns.
type Owner struct{ APIVersion, Kind, Name, UID string }

// Claim says that addresses are kept for the pod of that namespace and name,
// whether it runs or not, until Owner is gone.
type Claim struct {
	Namespace, Name string       // of the pod
	UID             string       // of the claim object
	Addresses       []netip.Addr // at most one per family, IPv4 first
	Owner           Owner
}

// Key returns "namespace/name".
func (c Claim) Key() string { return c.Namespace + "/" + c.Name }

// Rejection says that an object is not used, and why.
type Rejection struct {
	Object string // kind and name: "SubnetLease 10-42-3-0-24"
	Reason string
}
