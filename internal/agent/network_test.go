// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/kernel"
)

func parsed(t *testing.T, text string) v1alpha1.AgentConfiguration {
	t.Helper()
	c, err := v1alpha1.ParseAgentConfiguration([]byte("apiVersion: weft.dev/v1alpha1\nkind: AgentConfiguration\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func member(t *testing.T, network string) v1alpha1.AgentConfiguration {
	t.Helper()
	return parsed(t, "nodeName: node1\ncluster: {directory: /cluster}\nnetwork: {"+network+"}\n")
}

func underlay(addr string, mtu int) topology.Underlay {
	return topology.Underlay{Addr: netip.MustParsePrefix(addr), Dev: "uplink0", MTU: mtu}
}

func leaseOf(subnet, pool string) cluster.Lease {
	return cluster.Lease{Subnet: netip.MustParsePrefix(subnet), Pool: pool, Node: "node1"}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestMTUOfPods(t *testing.T) {
	four, six := underlay("198.18.1.11/24", 1500), underlay("2001:db8:18:1::11/64", 1500)
	cases := map[string]struct {
		config   v1alpha1.AgentConfiguration
		underlay []topology.Underlay
		want     int
	}{
		"VXLAN over IPv4":          {member(t, ""), []topology.Underlay{four}, 1450},
		"VXLAN over IPv6":          {member(t, ""), []topology.Underlay{six}, 1430},
		"both: IPv4 is preferred":  {member(t, ""), []topology.Underlay{four, six}, 1450},
		"two uplinks: the smaller": {member(t, ""), []topology.Underlay{four, underlay("2001:db8:18:1::11/64", 1400)}, 1350},
		"native":                   {member(t, "backend: {type: native}"), []topology.Underlay{four}, 1500},
		"configured":               {member(t, "mtu: 1300"), []topology.Underlay{four}, 1300},
		"no underlay found":        {member(t, ""), nil, 0},
		"no cluster":               {parsed(t, "network: {ranges: [[{subnet: 10.0.0.0/24}]]}\n"), []topology.Underlay{four}, 1500},
	}
	for name, c := range cases {
		n, err := inputs{config: c.config, underlay: c.underlay}.network()
		if err != nil || n.MTU != c.want {
			t.Errorf("%s: MTU %d, %v, want %d", name, n.MTU, err, c.want)
		}
	}
}

func TestNetworkOfLeases(t *testing.T) {
	in := inputs{
		config: member(t, "cooldown: 5s"), decided: true, synced: true,
		served: []cluster.Lease{leaseOf("10.42.3.0/24", "default"), leaseOf("10.42.9.0/24", "default"), leaseOf("fd00:42:0:3::/64", "default")},
		pools: []cluster.Pool{
			{Name: "default", Reserved: prefixes("10.42.3.128/25", "10.42.77.0/24")},
			{Name: "other", Reserved: prefixes("10.50.9.0/28")},
		},
	}
	n, err := in.network()
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Pool.Sets) != 2 || len(n.Pool.Sets[0]) != 2 || n.Cooldown != 5*time.Second || len(n.Routes) != 2 || n.Cluster != "/cluster" {
		t.Fatalf("network %+v", n)
	}
	// A reserved part of a block is taken out of it; another pool's are elsewhere.
	if got := n.Pool.Sets[0].Size(); got != 126+253 {
		t.Errorf("%d IPv4 addresses, want 126 of the reserved half and 253", got)
	}
	in.pools[0].Reserved = prefixes("10.42.0.0/21")
	if n, err = in.network(); err != nil || n.Pool.Sets[0].Size() != 253 {
		t.Errorf("%d IPv4 addresses of a block that is reserved as a whole and another, %v", n.Pool.Sets[0].Size(), err)
	}
}

// The kernel takes IPv6 off an interface with less than 1280 bytes, and does
// not give it back.
func TestMTUTooSmallForIPv6(t *testing.T) {
	in := inputs{config: member(t, "mtu: 1200"), decided: true, served: []cluster.Lease{leaseOf("10.42.3.0/24", "default")}}
	if n, err := in.network(); err != nil || n.MTU != 1200 {
		t.Errorf("IPv4 only: MTU %d, %v", n.MTU, err)
	}
	in.served = append(in.served, leaseOf("fd00:42:0:3::/64", "default"))
	if _, err := in.network(); err == nil || !strings.Contains(err.Error(), "network.mtu: is 1200") {
		t.Errorf("with IPv6: error %v", err)
	}
	in.config, in.underlay = member(t, ""), []topology.Underlay{underlay("198.18.1.11/24", 1300)}
	if n, err := in.network(); err != nil || n.MTU != 1280 {
		t.Errorf("of a small underlay: MTU %d, %v", n.MTU, err)
	}
}

// Until the registry has answered, and the keeper decided, the network of the
// journal serves, with all that it says of masquerading.
func TestRestoredNetworkServes(t *testing.T) {
	in := inputs{
		config: member(t, ""), decided: true, synced: true,
		underlay: []topology.Underlay{underlay("198.18.1.11/24", 1500)},
		served:   []cluster.Lease{leaseOf("10.42.3.0/24", "default")},
		pools:    []cluster.Pool{poolNamed("default", "10.42.0.0/16", true), poolNamed("public", "10.99.0.0/16", false)},
	}
	before, err := in.network()
	if err != nil {
		t.Fatal(err)
	}
	n, err := inputs{config: member(t, ""), restored: &before}.network()
	if err != nil || !reflect.DeepEqual(n, before) {
		t.Errorf("restored %+v, %v, want %+v", n, err, before)
	}
	in.restored, in.decided = &before, false
	in.served, in.pools = nil, in.pools[:1]
	if n, err = in.network(); err != nil || n.Pool.String() != before.Pool.String() || len(n.Plain) != 0 {
		t.Errorf("with the registry, before a decision: %+v, %v", n, err)
	}
	if n, err = (inputs{config: member(t, "")}).network(); err != nil || len(n.Pool.Sets) != 0 {
		t.Errorf("nothing restored, nothing leased, and yet %v, %v", n.Pool, err)
	}
}

func poolNamed(name, cidr string, masquerade bool) cluster.Pool {
	p := netip.MustParsePrefix(cidr)
	return cluster.Pool{Name: name, Masquerade: masquerade, Ranges: []cluster.PoolRange{{CIDR: p, BlockBits: 24}}}
}

func TestWhatIsMasqueraded(t *testing.T) {
	in := inputs{
		config: member(t, "masqueradeExclude: [192.168.0.0/16]"), decided: true, synced: true,
		served:  []cluster.Lease{leaseOf("10.42.3.0/24", "default"), leaseOf("10.99.3.0/24", "public")},
		pools:   []cluster.Pool{poolNamed("default", "10.42.0.0/16", true), poolNamed("public", "10.99.0.0/16", false)},
		outside: prefixes("10.7.1.0/24"),
	}
	node := func() kernel.Node {
		t.Helper()
		n, err := in.network()
		if err != nil {
			t.Fatal(err)
		}
		node, err := engine.AgentNode(facts.New(), n)
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	if got, want := node().Sources, prefixes("10.42.3.0/24"); !slices.Equal(got, want) {
		t.Errorf("masqueraded %v, want %v: the other pool says no", got, want)
	}
	want := prefixes("10.7.1.0/24", "10.42.0.0/16", "10.42.3.0/24", "10.99.0.0/16", "10.99.3.0/24", "192.168.0.0/16")
	if got := node().Pools; !slices.Equal(got, want) {
		t.Errorf("seen with their own address by %v, want %v", got, want)
	}
	in.config = member(t, "masquerade: false")
	if got := node(); len(got.Sources) != 0 || got.Table != "" {
		t.Errorf("masquerading is off, and yet %+v", got)
	}
}

// A pod that should have an address of each family must not start with one.
func TestMissingFamily(t *testing.T) {
	dual := poolNamed("dual", "10.42.0.0/16", true)
	dual.Ranges = append(dual.Ranges, cluster.PoolRange{CIDR: netip.MustParsePrefix("fd00:42::/48"), BlockBits: 64})
	four, six := poolNamed("four", "10.42.0.0/16", true), poolNamed("six", "fd00:42::/48", true)
	elsewhere := six
	elsewhere.Selector = cluster.Selector{{Key: "zone", Operator: cluster.Exists}}
	both := []cluster.Lease{leaseOf("10.42.3.0/24", "dual"), leaseOf("fd00:42:0:3::/64", "dual")}
	cases := map[string]struct {
		in   inputs
		want string
	}{
		"nothing":                      {inputs{}, "pod"},
		"both":                         {inputs{pools: []cluster.Pool{dual}, served: both}, ""},
		"IPv6 is missing":              {inputs{pools: []cluster.Pool{dual}, served: both[:1]}, "IPv6"},
		"IPv4 is missing":              {inputs{pools: []cluster.Pool{dual}, served: both[1:]}, "IPv4"},
		"IPv4 only":                    {inputs{pools: []cluster.Pool{four}, served: both[:1]}, ""},
		"the pool does not want it":    {inputs{pools: []cluster.Pool{four, elsewhere}, served: both[:1]}, ""},
		"subnets of the node's object": {inputs{node: &cluster.Node{PodCIDRs: prefixes("10.42.3.0/24", "fd00:42:0:3::/64")}, served: both[:1]}, "IPv6"},
		"whatever the pools have":      {inputs{node: &cluster.Node{PodCIDRs: prefixes("10.42.3.0/24")}, pools: []cluster.Pool{dual}, served: both[:1]}, ""},
	}
	for name, c := range cases {
		c.in.config, c.in.decided = member(t, ""), true
		if c.in.node == nil {
			c.in.node = &cluster.Node{Name: "node1"}
		}
		n, err := c.in.network()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.in.missing(n.Pool); got != c.want {
			t.Errorf("%s: %q is missing, want %q", name, got, c.want)
		}
	}
}

func TestFieldsThatCannotChange(t *testing.T) {
	a := member(t, "")
	for _, c := range []struct {
		field  string
		change func(*v1alpha1.AgentConfiguration)
	}{
		{"stateDir", func(c *v1alpha1.AgentConfiguration) { c.StateDir = "/elsewhere" }},
		{"socket", func(c *v1alpha1.AgentConfiguration) { c.Socket = "/elsewhere" }},
		{"nodeName", func(c *v1alpha1.AgentConfiguration) { c.NodeName = "node2" }},
		{"cluster", func(c *v1alpha1.AgentConfiguration) { c.Cluster = nil }},
		{"log.format", func(c *v1alpha1.AgentConfiguration) { c.Log.Format = "json" }},
		{"", func(c *v1alpha1.AgentConfiguration) { c.Network.MTU = 1400; c.Log.Level = "debug" }},
	} {
		b := a
		c.change(&b)
		if got := fixedField(a, b); got != c.field {
			t.Errorf("field %q, want %q", got, c.field)
		}
	}
}
