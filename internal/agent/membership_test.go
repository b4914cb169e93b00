// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/registry"
)

// recording returns an agent that has a journal and knows a registry, and has
// just started: it remembers nothing but what these say.
func recording(t *testing.T) *Agent {
	t.Helper()
	store, err := journal.Own(context.Background(), t.TempDir(), facts.New)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	a := &Agent{store: store, cluster: &membership{node: "node1", objects: registry.NewStore(), single: make(chan struct{}, 1)}}
	a.begin(member(t, ""))
	a.network.Store(&network{})
	return a
}

// attached records a complete attachment with an address; no subnet stands for
// an adopted one.
func (a *Agent) attached(t *testing.T, container, addr, subnet string) attach.Key {
	t.Helper()
	address := attach.Address{Addr: netip.MustParseAddr(addr)}
	if subnet != "" {
		address.Subnet = netip.MustParsePrefix(subnet)
	}
	return a.recorded(t, container, attach.Spec{Addresses: []attach.Address{address}})
}

// recorded records a complete attachment.
func (a *Agent) recorded(t *testing.T, container string, spec attach.Spec) attach.Key {
	t.Helper()
	k := attach.Key{Network: "weft", ContainerID: container, Ifname: "eth0"}
	var addrs []netip.Addr
	for _, address := range spec.Addresses {
		addrs = append(addrs, address.Addr)
	}
	err := a.store.Update(context.Background(), func(*facts.Facts) ([]string, error) {
		intent, err := facts.EncodeIntent(1, k, facts.Veth, addrs, facts.NewDetail(spec))
		if err != nil {
			return nil, err
		}
		complete, err := facts.EncodeComplete(2, k)
		return []string{intent, complete}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (a *Agent) subnets(t *testing.T) (used, idle []netip.Prefix) {
	t.Helper()
	blocks, err := (*addresses)(a).Blocks(time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.IdleSince == 0 {
			used = append(used, b.Subnet)
		} else {
			idle = append(idle, b.Subnet)
		}
	}
	return used, idle
}

// A block that pods have addresses of is known after a restart, whether it
// serves, is on its way out, or its pods were adopted: its lease must stay.
func TestBlocksThatPodsHaveAddressesOf(t *testing.T) {
	a := recording(t)
	set := func(subnet string) ipam.Set {
		r, err := ipam.NewRange(ipam.Range{Subnet: netip.MustParsePrefix(subnet)})
		if err != nil {
			t.Fatal(err)
		}
		return ipam.Set{r}
	}
	a.network.Store(&network{Network: engine.Network{Pool: ipam.Pool{Sets: []ipam.Set{set("10.42.3.0/24"), set("fd00:42:0:3::/64")}}}})
	a.cluster.objects.Apply(
		registry.Change{Key: registry.Key{Kind: registry.SubnetLease, Name: "10-42-7-0-24"}, Object: leaseOf("10.42.7.0/24", "default")},
		registry.Change{Key: registry.Key{Kind: registry.SubnetLease, Name: "10-42-8-0-24"}, Object: cluster.Lease{Subnet: netip.MustParsePrefix("10.42.8.0/24"), Node: "node2"}},
	)
	a.attached(t, "serving", "10.42.3.5", "10.42.3.0/24")
	a.attached(t, "draining", "10.99.9.5", "10.99.9.0/24")
	a.attached(t, "adopted", "10.42.7.5", "")
	a.attached(t, "stranger", "10.42.8.5", "") // adopted, in a block of another node
	used, idle := a.subnets(t)
	slices.SortFunc(used, netip.Prefix.Compare)
	if want := prefixes("10.42.3.0/24", "10.42.7.0/24", "10.99.9.0/24"); !slices.Equal(used, want) {
		t.Errorf("in use %v, want %v", used, want)
	}
	if want := prefixes("fd00:42:0:3::/64"); !slices.Equal(idle, want) {
		t.Errorf("idle %v, want %v", idle, want)
	}
}

// What ADD may give is what the network of this moment has, not that of the
// moment when the ADD began.
func TestAddressesOfADroppedBlockAreNotGranted(t *testing.T) {
	a := recording(t)
	r, err := ipam.NewRange(ipam.Range{Subnet: netip.MustParsePrefix("10.42.3.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	pool := ipam.Pool{Sets: []ipam.Set{{r}}}
	a.network.Store(&network{Network: engine.Network{Pool: pool}})
	begun := ipam.Request{Owner: "weft/c/eth0", Now: 1, Avoid: a.notGranted}
	if _, err := ipam.NewUsage().Allocate(pool, begun); err != nil {
		t.Errorf("from a block that is served: %v", err)
	}
	a.network.Store(&network{})
	if g, err := ipam.NewUsage().Allocate(pool, begun); err == nil {
		t.Errorf("%v was granted from a block that was dropped meanwhile", g)
	}
}

// The journal's network serves a node of the same cluster, and no other: its
// ranges would be other nodes' blocks.
func TestNetworkOfAnotherClusterIsNotRestored(t *testing.T) {
	for recorded, want := range map[string]bool{"/cluster": true, "/other": false, "": false} {
		a := recording(t)
		next := network{Network: engine.Network{Cluster: recorded, MTU: 1400}}
		if err := a.publish(context.Background(), next); err != nil {
			t.Fatal(err)
		}
		if err := a.restore(context.Background()); err != nil || (a.inputs.restored != nil) != want {
			t.Errorf("recorded of %q: restored %v, %v", recorded, a.inputs.restored, err)
		}
	}
}

// The node keeps looking for the addresses of its Node object while that is
// gone for a moment, and takes no place before it has seen it.
func TestAddressesToFind(t *testing.T) {
	a := recording(t)
	if _, ask := a.addressesToFind(); ask {
		t.Error("asks before the registry has delivered everything")
	}
	node := cluster.Node{Name: "node1", Addresses: []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1"),
	}}
	key := registry.Key{Kind: registry.Node, Name: "node1"}
	a.cluster.objects.Apply(registry.Change{Key: key, Object: node})
	a.readCluster()
	if _, ask := a.addressesToFind(); ask {
		t.Error("asks before the registry has delivered everything")
	}
	a.cluster.objects.Synced(time.Now())
	for range 2 {
		a.readCluster()
		wanted, ask := a.addressesToFind()
		if want := []netip.Addr{node.Addresses[0], node.Addresses[2]}; !ask || !slices.Equal(wanted, want) {
			t.Errorf("wanted %v, want %v", wanted, want)
		}
		a.cluster.objects.Apply(registry.Change{Key: key})
	}
}
