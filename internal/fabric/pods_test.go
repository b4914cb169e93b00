// SPDX-License-Identifier: Apache-2.0

package fabric_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
	"weft.dev/weft/internal/registry"
)

// host is a node with the real kernel's drivers.
type host struct {
	*testing.T
	ns    *nstest.NS
	store *registry.Store
	k     *kernel.Handle
	*fabric.Fabric
	now time.Time
}

func newHost(t *testing.T) *host {
	nstest.Need(t, "vxlan", "ipv6")
	h := &host{T: t, ns: nstest.New(t), store: registry.NewStore(), now: time.Unix(1_000_000, 0)}
	var k *kernel.Handle
	h.ns.Do(func() {
		for _, name := range []string{"uplink0", "pod0"} {
			h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
			h.must(netlink.LinkSetUp(h.link(name)))
			h.must(netlink.LinkSetUp(h.link(name + "p")))
		}
		for _, a := range []string{"198.18.1.11/24", "fd00:1::11/64"} {
			addr, err := netlink.ParseAddr(a)
			h.must(err)
			h.must(netlink.AddrAdd(h.link("uplink0"), addr))
		}
		var err error
		k, err = kernel.Open()
		h.must(err)
	})
	t.Cleanup(k.Close)
	h.k = k
	h.Fabric = fabric.New(h.store, fabric.Drivers{
		Sysctls: k.Sysctls(), Links: k.VXLANLinks("/run/weft"), Addresses: k.FabricAddresses(), Neighbours: k.FabricNeighbours(),
		FDB: k.FDB(), Routes: k.FabricRoutes(), NAT: k.NAT(),
	})
	h.SetSelf(topology.Self{Node: "node1", Backend: topology.Auto, VNI: 7, Port: 8472, Underlay: []topology.Underlay{
		{Addr: netip.MustParsePrefix("198.18.1.11/24"), Dev: "uplink0", MTU: 1500},
		{Addr: netip.MustParsePrefix("fd00:1::11/64"), Dev: "uplink0", MTU: 1500},
	}})
	h.SetNode(fabric.Node{})
	for _, name := range []string{"node1", "node2", "node3"} {
		h.store.Apply(registry.Change{Key: registry.Key{Kind: registry.Node, Name: name}, Object: cluster.Node{Name: name}})
	}
	h.store.Synced(h.now)
	return h
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) link(name string) netlink.Link {
	l, err := netlink.LinkByName(name)
	h.must(err)
	return l
}

// underlays of the nodes: node2 is on node1's segment, node3 is not.
var underlays = map[string][]netip.Addr{
	"node1": {netip.MustParseAddr("198.18.1.11"), netip.MustParseAddr("fd00:1::11")},
	"node2": {netip.MustParseAddr("198.18.1.12"), netip.MustParseAddr("fd00:1::12")},
	"node3": {netip.MustParseAddr("198.18.2.13"), netip.MustParseAddr("fd00:2::13")},
}

// lease has a node hold a subnet; for a pod, if it is one address.
func (h *host) lease(subnet, node string) {
	l := cluster.Lease{
		Subnet: netip.MustParsePrefix(subnet), UID: subnet, Node: node, Addresses: underlays[node],
		VTEP: cluster.VTEP{MAC: cluster.VTEPMAC(node), VNI: 7, Port: 8472},
	}
	if l.Subnet.IsSingleIP() {
		l.Pod, l.Created = "prod/db-0", 1
	}
	h.store.Apply(registry.Change{Key: registry.Key{Kind: registry.SubnetLease, Name: l.Name()}, Object: l})
}

// settle makes passes until nothing fails any more.
func (h *host) settle() {
	h.Helper()
	for range 20 {
		h.now = h.now.Add(10 * time.Second)
		h.Step(h.now)
	}
	for _, s := range h.Status() {
		if s.Pending > 0 || len(s.Failing) > 0 {
			h.Errorf("%+v", s)
		}
	}
}

// expect asks the kernel where packets to an address go: "vxlan", "uplink0", the
// name of a device, or "nowhere".
func (h *host) expect(addr, way string) {
	h.Helper()
	if got := h.way(addr); got != way {
		h.Errorf("packets to %s go %s, want %s", addr, got, way)
	}
}

func (h *host) way(addr string) (dev string) {
	h.Helper()
	h.ns.Do(func() {
		routes, err := netlink.RouteGet(netip.MustParseAddr(addr).AsSlice())
		if err != nil {
			dev = "nowhere"
			return
		}
		l, err := netlink.LinkByIndex(routes[0].LinkIndex)
		h.must(err)
		dev = l.Attrs().Name
	})
	return dev
}

// podHere makes the host route that an attachment has, or takes it away.
func (h *host) podHere(addr string, here bool) {
	h.Helper()
	h.ns.Do(func() {
		a := netip.MustParseAddr(addr)
		dst := netlink.NewIPNet(a.AsSlice())
		r := &netlink.Route{LinkIndex: h.link("pod0").Attrs().Index, Dst: dst, Protocol: kernel.RouteProtocol, Scope: netlink.SCOPE_LINK}
		if here {
			h.must(netlink.RouteAdd(r))
		} else {
			h.must(netlink.RouteDel(r))
		}
	})
}

// A pod takes its address from node to node, this one included: the kernel
// takes every route that follows, in both families, and they lead there.
func TestAddressesOfPodsInTheKernel(t *testing.T) {
	for _, family := range []struct{ block, addr, other string }{
		{"10.42.%d.0/24", "10.42.%d.7", "10.42.%d.8"},
		{"fd00:42:0:%d::/64", "fd00:42:0:%d::7", "fd00:42:0:%d::8"},
	} {
		t.Run(family.addr, func(t *testing.T) {
			h := newHost(t)
			for i := 1; i <= 3; i++ {
				h.lease(fmt.Sprintf(family.block, i), fmt.Sprintf("node%d", i))
			}
			h.settle()
			home := []string{1: "nowhere", 2: "uplink0", 3: topology.VXLANDevice4}
			for block := 1; block <= 3; block++ {
				a, other := fmt.Sprintf(family.addr, block), fmt.Sprintf(family.other, block)
				host := netip.MustParseAddr(a)
				subnet := netip.PrefixFrom(host, host.BitLen()).String()
				h.expect(a, home[block])
				for _, holder := range []int{3, 2, 1, 2, 3, 1, 3} {
					h.lease(subnet, fmt.Sprintf("node%d", holder))
					h.settle()
					if holder != 1 {
						h.expect(a, home[holder])
					} else {
						h.expect(a, "nowhere") // and not where the block leads
						h.podHere(a, true)     // which nothing of the fabric's is in the way of
						h.settle()
						h.expect(a, "pod0")
						h.podHere(a, false)
						h.expect(a, "nowhere")
					}
					h.expect(other, home[block])
				}
				h.store.Apply(registry.Change{Key: registry.Key{
					Kind: registry.SubnetLease, Name: cluster.LeaseName(netip.MustParsePrefix(subnet)),
				}})
				h.settle()
				h.expect(a, home[block])
			}
		})
	}
}

// The lease of a pod may come after its route, and go before it. Whatever
// happens to the route of last resort meanwhile, the pod's is untouched.
func TestLeaseComesAndGoesUnderAPod(t *testing.T) {
	for _, family := range []struct{ block, addr string }{{"10.42.3.0/24", "10.42.3.7"}, {"fd00:42:0:3::/64", "fd00:42:0:3::7"}} {
		t.Run(family.addr, func(t *testing.T) {
			h := newHost(t)
			host := netip.MustParseAddr(family.addr)
			subnet := netip.PrefixFrom(host, host.BitLen())
			h.lease(family.block, "node3")
			h.podHere(family.addr, true)
			h.settle()
			for range 2 {
				h.lease(subnet.String(), "node1")
				h.settle()
				h.expect(family.addr, "pod0")
				last := h.lastResort(subnet)
				h.ns.Do(func() { h.must(netlink.RouteDel(last)) }) // somebody flushes routes
				h.Resync(fabric.Routes)
				h.settle()
				h.lastResort(subnet)
				h.expect(family.addr, "pod0")
				h.store.Apply(registry.Change{Key: registry.Key{Kind: registry.SubnetLease, Name: cluster.LeaseName(subnet)}})
				h.settle()
				h.expect(family.addr, "pod0")
			}
			h.podHere(family.addr, false)
			h.expect(family.addr, topology.VXLANDevice4) // with the lease, the last resort has gone
		})
	}
}

// lastResort returns the unreachable route to an address, which must be there.
func (h *host) lastResort(subnet netip.Prefix) (last *netlink.Route) {
	h.Helper()
	h.ns.Do(func() {
		family := netlink.FAMILY_V4
		if subnet.Addr().Is6() {
			family = netlink.FAMILY_V6
		}
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Protocol: kernel.RouteProtocol}, netlink.RT_FILTER_PROTOCOL)
		h.must(err)
		for _, r := range routes {
			if r.Dst.String() == subnet.String() && r.Type == unix.RTN_UNREACHABLE {
				last = &r
			}
		}
		if last == nil {
			h.Fatalf("there is no unreachable route to %s: %v", subnet, routes)
		}
	})
	return last
}
