// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
)

// What the names of origins begin with.
const (
	leaseOrigin = "SubnetLease "
	nodeOrigin  = "Node "
)

// entry is what a lease says, as far as it matters here.
type entry struct {
	origin  string // "SubnetLease <name> of <node>"
	name    string // the lease's; shares its bytes with origin
	node    string // likewise
	subnet  netip.Prefix
	created int64
	addrs   [len(families)]netip.Addr // of the node; zero: none in that family
	vtep    cluster.VTEP
	mac     attach.MAC // of the node's VTEP, as it must be
	ofPod   bool       // the subnet is one address, which a pod has to itself
}

// newEntry keeps no string of l, which may be part of a whole manifest.
func newEntry(name string, l cluster.Lease) entry {
	origin := leaseOrigin + name + " of " + l.Node
	return entry{
		origin: origin, name: origin[len(leaseOrigin):][:len(name)], node: origin[len(origin)-len(l.Node):],
		subnet: l.Subnet, created: l.Created, addrs: addrsOf(l), vtep: l.VTEP, mac: cluster.VTEPMAC(l.Node),
		ofPod: l.Pod != "",
	}
}

func addrsOf(l cluster.Lease) (addrs [len(families)]netip.Addr) {
	for _, a := range l.Addresses {
		addrs[familyOf(a)] = a
	}
	return addrs
}

// says reports whether the entry is what l says.
func (e *entry) says(l cluster.Lease) bool {
	return e.node == l.Node && e.created == l.Created && e.vtep == l.VTEP && e.addrs == addrsOf(l) &&
		e.ofPod == (l.Pod != "")
}

// gateway is the lease's next hop for other nodes: of a block the address after
// the network address, as in package ipam, where it is the host's for its pods;
// of a pod's lease the address itself, which no other lease has.
func (e *entry) gateway() netip.Addr {
	if e.ofPod {
		return e.subnet.Addr()
	}
	return e.subnet.Addr().Next()
}

// older orders entries by age: the first holds what both want.
func older(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.name, b.name))
}

// flaw says why the lease does not count, on any node; "" if it does. known
// tells whether its node is.
func (e *entry) flaw(known bool) string {
	if !known {
		return fmt.Sprintf("Node %s is not known", e.node)
	}
	if e.ofPod && !e.subnet.IsSingleIP() {
		return fmt.Sprintf("%s is more than the one address that a pod's lease is of", e.subnet)
	}
	if longest := e.subnet.Addr().BitLen() - 2; !e.ofPod && e.subnet.Bits() > longest {
		return fmt.Sprintf("%s has no room for a gateway and pods; want /%d or larger", e.subnet, longest)
	}
	if a := e.contained(e); a.IsValid() {
		return fmt.Sprintf("contains its own node's address %s", a)
	}
	if e.hasVTEP() && e.vtep.MAC != e.mac {
		return fmt.Sprintf("the VTEP's MAC is %s; that of %s is %s", e.vtep.MAC, e.node, e.mac)
	}
	return ""
}

// conflict says how the claims of two leases collide, in words about e that end
// with the other's name; "" if they do not.
func (e *entry) conflict(other *entry) string {
	switch {
	case !e.subnet.Overlaps(other.subnet):
	case e.ofPod == other.ofPod:
		return "overlaps " + other.origin
	case e.gateway() == other.gateway():
		return fmt.Sprintf("has the gateway %s in common with %s", e.gateway(), other.origin)
	}
	if a := e.contained(other); a.IsValid() {
		return fmt.Sprintf("contains node address %s of %s", a, other.origin)
	}
	if a := other.contained(e); a.IsValid() {
		return fmt.Sprintf("its node address %s lies in the subnet of %s", a, other.origin)
	}
	return ""
}

// contained returns the node address of a lease that lies in the subnet of e,
// zero if none does.
func (e *entry) contained(other *entry) netip.Addr {
	if a := other.addrs[familyOf(e.subnet.Addr())]; e.subnet.Contains(a) {
		return a
	}
	return netip.Addr{}
}

func (e *entry) hasVTEP() bool { return e.vtep != cluster.VTEP{} }
