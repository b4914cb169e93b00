// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/registry"
)

// A process that never runs for long gives rejected leases back as well: their
// time counts from the lease, not from the process.
func TestRestartsKeepNoRejectedLease(t *testing.T) {
	w := newWorld(onePool())
	n := w.add("a")
	n.sync(t)
	bad := n.expectServed(t, 1)[0]
	n.rejected = map[string]string{cluster.LeaseName(bad): "overlaps SubnetLease 10-42-0-0-24 of b, which is older"}
	n.sync(t)
	for range 3 {
		w.pass(4 * time.Minute)
		n.start()
		n.sync(t)
	}
	if held := n.expectServed(t, 1); held[0] == bad {
		t.Fatalf("holds %v after 12 minutes", held)
	}
}

// What a node holds of a pool in its own network, as one that did not look had
// claimed it, goes back in the first pass of a process, whether the pool is there
// still or not; another pool gives its blocks in the same pass.
func TestMistakenPool(t *testing.T) {
	network := netip.MustParsePrefix("198.18.1.0/24")
	for _, there := range []bool{true, false} {
		w := newWorld(onePool())
		mistaken := registry.Key{Kind: registry.IPPool, Name: "mistaken"}
		w.registry.Put(mistaken, cluster.Pool{
			Name: "mistaken", OnRequest: true, Ranges: []cluster.PoolRange{{CIDR: network, BlockBits: 28}},
		})
		n := w.add("a")
		n.rejected = map[string]string{}
		for i := range 4 {
			subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(16 * i)}), 28)
			w.registry.Put(leaseKey(subnet), cluster.Lease{Subnet: subnet, Node: "a", Pool: "mistaken", UID: subnet.String()})
			n.rejected[cluster.LeaseName(subnet)] = "overlaps 198.18.1.0/24, the network of eth0 on a, which would be cut off"
		}
		n.identity.Networks = []lease.Network{{Prefix: network, Dev: "eth0"}}
		if !there {
			w.registry.Remove(mistaken)
		}
		n.start()
		n.keeper.Demand("mistaken")
		n.sync(t)
		n.expectServed(t, 1)
		status := strings.Join(n.keeper.Status().Waiting, "; ")
		want := "a pod asks for IPPool mistaken, and there is none of that name in use"
		if there {
			want = "IPPool mistaken: every block /28 in 198.18.1.0/24 overlaps this node's network 198.18.1.0/24 (eth0)"
		}
		if !strings.Contains(status, want) {
			t.Errorf("waiting: %s; want %s", status, want)
		}
		for range 20 { // nothing more happens, however long the pod asks
			before := w.registry.Len()
			w.pass(time.Minute)
			n.keeper.Demand("mistaken")
			if n.sync(t); w.registry.Len() > before {
				t.Fatalf("wrote again; holds %v", w.heldBy("a"))
			}
		}
	}
}

// No block is claimed in which a node has its address, as the Store shows it by
// then.
func TestBlocksOfNodesAreAvoided(t *testing.T) {
	w := newWorld(onePool())
	var nodes []netip.Addr
	for i := range 4 { // one in each block of the pool
		nodes = append(nodes, netip.AddrFrom4([4]byte{10, 42, 0, byte(8*i + 2)}))
	}
	far := registry.Key{Kind: registry.Node, Name: "far"}
	w.registry.Put(far, cluster.Node{Name: "far", Addresses: nodes})
	n := w.add("a")
	n.sync(t)
	n.expectServed(t, 0)
	n.expectWaiting(t, "Node a has no IPv4 block, and none is free: IPPool default: of 4 blocks /29 in 10.42.0.0/27, "+
		"0 are leased and 0 reserved, and 4 cannot be used because of the address 10.42.0.2 of Node far")
	w.registry.Put(far, cluster.Node{Name: "far", Addresses: slices.Delete(slices.Clone(nodes), 2, 3)})
	n.sync(t)
	if got := n.expectServed(t, 1); len(got) == 1 && !got[0].Contains(nodes[2]) {
		t.Errorf("serves %v, in which is a node", got)
	}
	w.registry.Remove(far)
	n.ipam.setPods(n.ipam.served()[0], blockSize)
	n.sync(t)
	n.expectServed(t, 2)
}
