// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/engine"
)

// inputs is what the node's network follows from. Slices in it are replaced,
// never changed.
type inputs struct {
	config   v1alpha1.AgentConfiguration
	underlay []topology.Underlay
	// restored is what the journal had of the same cluster: it serves until the
	// registry has answered, so that pods start and keep their way out while it
	// is out of reach.
	restored *engine.Network
	// decided: served is what the keeper decided; until then restored serves.
	decided bool
	served  []cluster.Lease

	// What the registry says; zero until it has delivered everything, and this
	// node's object with it.
	synced  bool
	node    *cluster.Node  // this node's object, as it was when it was last there
	known   []netip.Addr   // this node's addresses, as its leases say
	pools   []cluster.Pool // accepted ones
	outside []netip.Prefix // subnets of leases that are in no pool (any more)
}

// network returns the network that ADD attaches pods to. Its MTU is 0 if
// nothing says one.
func (in inputs) network() (engine.Network, error) {
	c := in.config.Network
	n := engine.Network{
		Routes: c.Routes, MTU: c.MTU, Masquerade: *c.Masquerade, Cooldown: time.Duration(*c.Cooldown), Direct: c.MasqueradeExclude,
	}
	if n.MTU == 0 {
		n.MTU = in.podMTU()
	}
	var err error
	if in.config.Cluster == nil {
		n.Pool, err = c.Pool()
	} else {
		err = in.member(&n)
	}
	if err != nil {
		return n, fmt.Errorf("ranges of this node: %w", err)
	}
	if n.Routes == nil {
		n.Routes = v1alpha1.DefaultRoutes(n.Pool)
	}
	ipv6 := slices.ContainsFunc(n.Pool.Subnets(), func(p netip.Prefix) bool { return p.Addr().Is6() })
	if ipv6 && n.MTU != 0 && n.MTU < attach.MinMTU6 {
		return n, fmt.Errorf("network.mtu: is %d, but this node has IPv6 addresses, which need %d at least; pods keep what they have", n.MTU, attach.MinMTU6)
	}
	return n, nil
}

// member adds what a node of a cluster has from there.
func (in inputs) member(n *engine.Network) (err error) {
	n.Cluster = clusterName(in.config.Cluster)
	was := engine.Network{}
	if in.restored != nil {
		was = *in.restored
	}
	if n.MTU == 0 {
		n.MTU = was.MTU
	}
	n.Pool, n.OnRequest = was.Pool, was.OnRequest
	if in.decided {
		n.Pool, err = in.leasedPool()
	}
	if !in.synced {
		n.Direct, n.Plain = slices.Concat(n.Direct, was.Direct), was.Plain
		return err
	}
	n.Direct = slices.Concat(n.Direct, in.outside)
	n.OnRequest = nil
	for _, l := range in.served {
		if slices.ContainsFunc(in.pools, func(p cluster.Pool) bool { return p.Name == l.Pool && p.OnRequest }) {
			n.OnRequest = append(n.OnRequest, l.Subnet)
		}
	}
	for _, p := range in.pools {
		for _, r := range p.Ranges {
			n.Direct = append(n.Direct, r.CIDR)
			if !p.Masquerade {
				n.Plain = append(n.Plain, r.CIDR)
			}
		}
	}
	return err
}

// podMTU is the underlay's, less what VXLAN takes if packets may go that way;
// 0 if there is no underlay. VXLAN prefers IPv4. A peer that has only IPv6 is
// reached with 20 bytes less, which its device tells the pods by ICMP.
func (in inputs) podMTU() int {
	mtu := 0
	for _, u := range in.underlay {
		of := u.MTU
		if in.config.Cluster != nil && in.config.Network.Backend.Type != topology.Native {
			of -= overhead(in.underlay[0])
		}
		if mtu == 0 || of < mtu {
			mtu = of
		}
	}
	if mtu == 0 {
		return 0
	}
	return max(mtu, attach.MinMTU6) // as the VXLAN device's, which then has its packets fragmented
}

func overhead(u topology.Underlay) int {
	if u.Addr.Addr().Is4() {
		return topology.Overhead4
	}
	return topology.Overhead6
}

// leasedPool makes a set of each family of the leases, without the addresses
// that their pools reserve.
func (in inputs) leasedPool() (ipam.Pool, error) {
	var families [2]ipam.Set
	for _, l := range in.served {
		r, err := in.rangeOf(l)
		if err != nil {
			return ipam.Pool{}, err
		}
		families[family(l.Subnet.Addr())] = append(families[family(l.Subnet.Addr())], r)
	}
	sets := slices.DeleteFunc(families[:], func(s ipam.Set) bool { return len(s) == 0 })
	if len(sets) == 0 {
		return ipam.Pool{}, nil
	}
	return ipam.NewPool(sets)
}

// rangeOf returns the addresses that a lease gives.
func (in inputs) rangeOf(l cluster.Lease) (ipam.Range, error) {
	return ipam.NewRange(ipam.Range{Subnet: l.Subnet, Exclude: in.reservedIn(l)})
}

// reservedIn returns the parts of a lease that pools reserve, whichever the
// lease is of: one of a PodCIDR is of none, and may be inside of one.
func (in inputs) reservedIn(l cluster.Lease) []netip.Prefix {
	var reserved []netip.Prefix
	for _, p := range in.pools {
		for _, r := range p.Reserved {
			switch {
			case !r.Overlaps(l.Subnet):
			case r.Bits() >= l.Subnet.Bits():
				reserved = append(reserved, r)
			default:
				reserved = append(reserved, l.Subnet) // all of it
			}
		}
	}
	return reserved
}

// missing names the family that the node should have a block of and has not;
// "" if there is none. A pod that should have two addresses must not start with
// one.
func (in inputs) missing(pool ipam.Pool) string {
	var want, have [2]bool
	asked := false // there are addresses for pods that ask for them
	if in.node != nil {
		for _, p := range in.node.PodCIDRs {
			want[family(p.Addr())] = true
		}
		for _, p := range in.pools {
			for _, r := range p.Ranges {
				if len(in.node.PodCIDRs) > 0 || !p.Selector.Matches(in.node.Labels) {
					continue
				}
				if p.OnRequest {
					asked = true
				} else {
					want[family(r.CIDR.Addr())] = true
				}
			}
		}
	}
	for _, p := range pool.Subnets() {
		have[family(p.Addr())] = true
	}
	switch {
	case have == [2]bool{} && (want != [2]bool{} || !asked):
		return "pod"
	case want[0] && !have[0]:
		return "IPv4"
	case want[1] && !have[1]:
		return "IPv6"
	}
	return ""
}

// family is 0 for IPv4 and 1 for IPv6.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
