// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/topology"
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
		config: member(t, "cooldown: 5s"),
		served: []cluster.Lease{leaseOf("10.42.3.0/24", "default"), leaseOf("10.42.9.0/24", "default"), leaseOf("fd00:42:0:3::/64", "default")},
		pools: []cluster.Pool{
			{Name: "default", Reserved: prefixes("10.42.3.128/25", "10.42.77.0/24")},
			{Name: "other", Reserved: prefixes("10.42.9.0/28")},
		},
	}
	n, err := in.network()
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Pool.Sets) != 2 || len(n.Pool.Sets[0]) != 2 || n.Cooldown != 5*time.Second || len(n.Routes) != 2 {
		t.Fatalf("network %+v", n)
	}
	// A reserved part of a block is taken out of it; another pool's is none of its business.
	if got := n.Pool.Sets[0].Size(); got != 126+253 {
		t.Errorf("%d IPv4 addresses, want 126 of the reserved half and 253", got)
	}
}

func TestNoLeaseNoAddress(t *testing.T) {
	n, err := inputs{config: member(t, "")}.network()
	if err != nil || len(n.Pool.Sets) != 0 {
		t.Errorf("pool %v, %v", n.Pool, err)
	}
}

// Until the first decision the ranges of the journal serve.
func TestRestoredRangesServe(t *testing.T) {
	before, err := inputs{config: member(t, ""), served: []cluster.Lease{leaseOf("10.42.3.0/24", "default")}}.network()
	if err != nil {
		t.Fatal(err)
	}
	n, err := inputs{config: member(t, ""), restored: &before.Pool}.network()
	if err != nil || n.Pool.String() != before.Pool.String() {
		t.Errorf("pool %v, %v, want %v", n.Pool, err, before.Pool)
	}
}

func TestWhatIsMasqueraded(t *testing.T) {
	in := inputs{
		config: member(t, "masqueradeExclude: [192.168.0.0/16]"),
		served: []cluster.Lease{leaseOf("10.42.3.0/24", "default"), leaseOf("10.99.3.0/24", "public")},
		pools: []cluster.Pool{
			{Name: "default", Masquerade: true, Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.42.0.0/16"), BlockBits: 24}}},
			{Name: "public", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.99.0.0/16"), BlockBits: 24}}},
		},
		outside: prefixes("10.7.1.0/24"),
	}
	n, err := in.network()
	if err != nil {
		t.Fatal(err)
	}
	node, err := in.node(facts.New(), n)
	if err != nil {
		t.Fatal(err)
	}
	if want := prefixes("10.42.3.0/24"); !slices.Equal(node.Sources, want) {
		t.Errorf("masqueraded %v, want %v: the other pool says no", node.Sources, want)
	}
	want := prefixes("10.7.1.0/24", "10.42.0.0/16", "10.42.3.0/24", "10.99.0.0/16", "10.99.3.0/24", "192.168.0.0/16")
	if !slices.Equal(node.Pools, want) {
		t.Errorf("seen with their own address by %v, want %v", node.Pools, want)
	}
	in.config = member(t, "masquerade: false")
	if n, err = in.network(); err != nil {
		t.Fatal(err)
	}
	if node, err = in.node(facts.New(), n); err != nil || len(node.Sources) != 0 || node.Table != "" {
		t.Errorf("masquerading is off, and yet %+v, %v", node, err)
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
