// SPDX-License-Identifier: Apache-2.0

package wish

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/cluster"
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func subnet(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func ranges(list ...string) (rs []cluster.PoolRange) {
	for _, s := range list {
		i := strings.LastIndex(s, "/")
		bits := 0
		fmt.Sscan(s[i+1:], &bits)
		rs = append(rs, cluster.PoolRange{CIDR: subnet(s[:i]), BlockBits: bits})
	}
	return rs
}

func leaseOf(s, node, pool, pod string) cluster.Lease {
	return cluster.Lease{Subnet: subnet(s), Node: node, Pool: pool, Pod: pod, UID: "uid of " + s}
}

func claimOf(name string, addrs ...string) cluster.Claim {
	c := cluster.Claim{Namespace: "prod", Name: name}
	for _, a := range addrs {
		c.Addresses = append(c.Addresses, addr(a))
	}
	return c
}

// node1 gives addresses from blocks of the pools default and public; node2 has
// blocks too. The pod prod/db-0 of a StatefulSet starts on node1.
func view() View {
	v := View{
		Node: "node1", Labels: map[string]string{"zone": "a"},
		Pod: cluster.Pod{Namespace: "prod", Name: "db-0", Controller: cluster.Owner{Kind: "StatefulSet", Name: "db"}},
		Pools: []cluster.Pool{
			{Name: "default", Ranges: ranges("10.42.0.0/16/24", "fd00:42::/48/64"), Reserved: []netip.Prefix{
				subnet("10.42.1.16/28"), subnet("10.42.9.0/28"), subnet("fd00:42:0:9::/96")}},
			{Name: "public", Ranges: ranges("10.99.0.0/24/28"), OnRequest: true},
			{Name: "remote", Ranges: ranges("10.97.0.0/24/28"), Reserved: []netip.Prefix{subnet("10.97.0.16/28")},
				Selector: cluster.Selector{{Key: "zone", Operator: cluster.In, Values: []string{"b"}}}},
			{Name: "second", Ranges: ranges("10.43.0.0/16/24", "fd00:43::/48/64"), OnRequest: true},
		},
		Served: []cluster.Lease{
			leaseOf("10.42.1.0/24", "node1", "default", ""), leaseOf("10.99.0.16/28", "node1", "public", ""),
			leaseOf("fd00:42:0:1::/64", "node1", "default", ""),
		},
		Leases: map[string]cluster.Lease{}, Claims: map[string]cluster.Claim{},
	}
	others := []cluster.Lease{
		leaseOf("10.42.2.0/24", "node2", "default", ""), leaseOf("fd00:42:0:2::/64", "node2", "default", ""),
		leaseOf("10.42.3.0/24", "node1", "default", ""), // being drained
		leaseOf("10.200.2.0/24", "node4", "", ""),       // assigned by the cluster
		leaseOf("10.42.9.5/32", "node2", "default", "prod/db-9"), leaseOf("10.42.9.6/32", "node2", "default", "prod/db-0"),
		leaseOf("10.42.9.7/32", "node1", "default", "prod/db-0"), leaseOf("10.42.1.7/32", "node2", "default", "prod/db-0"),
		leaseOf("10.42.1.8/32", "node2", "default", "prod/db-9"),
	}
	for _, l := range slices.Concat(v.Served, others) {
		v.Leases[l.Name()] = l
	}
	v.Claims["prod/db-7"] = claimOf("db-7", "10.42.1.9", "10.42.9.9")
	return v
}

func describe(a Answer) string {
	var parts []string
	list := func(what string, leases []cluster.Lease) {
		for _, l := range leases {
			text := what + " " + l.Subnet.String()
			if what == "lease" {
				text += " of " + l.Pool + " for " + l.Pod
			}
			parts = append(parts, text)
		}
	}
	list("block", a.Blocks)
	for _, addr := range a.Addresses {
		parts = append(parts, "address "+addr.String())
	}
	list("lease", a.Lease)
	list("take over", a.TakeOver)
	list("drop", a.Drop)
	if a.Keep {
		parts = append(parts, "keep")
	}
	if a.Demand != "" {
		parts = append(parts, "demand "+a.Demand)
	}
	return strings.Join(parts, ", ")
}

func asks(addrs ...string) (w Wish) {
	for _, a := range addrs {
		w.Addresses = append(w.Addresses, addr(a))
	}
	return w
}

var sticky = Wish{Sticky: true}

func TestResolve(t *testing.T) {
	const normal = "block 10.42.1.0/24, block fd00:42:0:1::/64"
	cases := map[string]struct {
		wish   Wish
		change func(*View)
		want   string // or the reason, and parts of the message
	}{
		"nothing":                         {Wish{}, nil, normal},
		"nothing, where nothing is left":  {Wish{}, func(v *View) { v.Served = nil }, ""},
		"nothing, the pool is gone":       {Wish{}, func(v *View) { v.Pools = v.Pools[1:] }, normal},
		"nothing, the cluster assigns":    {Wish{}, func(v *View) { v.Served = []cluster.Lease{leaseOf("10.200.1.0/24", "node1", "", "")} }, "block 10.200.1.0/24"},
		"a claim does not hold the lax":   {Wish{}, claims("10.42.1.77"), normal},
		"MTU too small for IPv6":          {Wish{MTU: 1000}, nil, "InvalidAnnotation: weft.dev/mtu: is 1000"},
		"MTU too small for IPv6, without": {Wish{MTU: 1000, Pool: "public"}, nil, "block 10.99.0.16/28"},

		"a pool":                      {Wish{Pool: "public"}, nil, "block 10.99.0.16/28"},
		"a pool that is there anyhow": {Wish{Pool: "default"}, nil, normal},
		"a pool without a block here": {Wish{Pool: "second"}, nil, "demand second"},
		"a pool whose block is full":  {Wish{Pool: "public"}, full("10.99.0.16/28"), "demand public"},
		"a pool, one family is full":  {Wish{Pool: "default"}, full("fd00:42:0:1::/64"), "demand default"},
		"a pool that there is not":    {Wish{Pool: "nowhere"}, nil, "UnknownPool: weft.dev/pool: there is no IPPool nowhere"},
		"a pool that is refused": {Wish{Pool: "wrong"}, func(v *View) { v.PoolRefused = "it overlaps another; give it another range" },
			"UnknownPool: weft.dev/pool: IPPool wrong is not in use until it is mended: it overlaps another; give it another range"},
		"a pool for others":            {Wish{Pool: "remote"}, nil, "PoolNotForNode: IPPool remote does not select node node1"},
		"a pool, the cluster assigns":  {Wish{Pool: "second"}, func(v *View) { v.Served[0].Pool = "" }, "PoolNotForNode: has the subnets that the cluster assigns"},
		"a full pool, but fixed":       {Wish{Pool: "public", Addresses: asks("10.99.0.20").Addresses}, full("10.99.0.16/28"), "block 10.99.0.16/28, address 10.99.0.20"},
		"a pool, one family fixed":     {Wish{Pool: "default", Addresses: asks("10.42.1.5").Addresses}, nil, normal + ", address 10.42.1.5"},
		"a pool, the other is full":    {Wish{Pool: "default", Addresses: asks("10.42.1.5").Addresses}, full("fd00:42:0:1::/64"), "demand default"},
		"a pool, an address outside":   {Wish{Pool: "public", Addresses: asks("10.42.1.5").Addresses}, nil, "AddressOutsidePools: weft.dev/ipv4: 10.42.1.5 is not in IPPool public"},
		"an address on request only":   {asks("10.99.0.20"), nil, "block 10.99.0.16/28, block fd00:42:0:1::/64, address 10.99.0.20"},
		"an address in no pool":        {asks("10.1.2.3"), nil, "AddressOutsidePools: is in no IPPool in use; ask for another address"},
		"an address in the own block":  {asks("10.42.1.5"), nil, normal + ", address 10.42.1.5"},
		"addresses of both families":   {asks("10.42.1.5", "fd00:42:0:1::5"), nil, normal + ", address 10.42.1.5, address fd00:42:0:1::5"},
		"a network address":            {asks("10.42.1.0"), nil, "AddressUnusable: block 10.42.1.0/24"},
		"a gateway":                    {asks("10.42.1.1"), nil, "AddressUnusable"},
		"a broadcast address":          {asks("10.42.1.255"), nil, "AddressUnusable"},
		"an IPv6 gateway":              {asks("fd00:42:0:1::1"), nil, "AddressUnusable: weft.dev/ipv6"},
		"what would be a gateway":      {asks("10.42.9.1"), nil, "AddressUnusable: block 10.42.9.0/24"},
		"a claim of another pod":       {asks("10.42.1.9"), nil, "AddressInUse: kept by AddressClaim prod/db-7"},
		"another's claim, reserved":    {asks("10.42.9.9"), nil, "AddressInUse: kept by AddressClaim prod/db-7"},
		"another's lease in our block": {asks("10.42.1.8"), nil, "AddressInUse: pod prod/db-9 on node node2"},
		"a leftover in our block":      {asks("10.42.1.7"), nil, normal + ", address 10.42.1.7, drop 10.42.1.7/32"},
		"in another node's block":      {asks("10.42.2.5"), nil, "AddressOnOtherNode: block 10.42.2.0/24 of node node2; IPPool default reserve; weft.dev/sticky"},
		"in a block being drained":     {asks("10.42.3.5"), nil, "AddressNotReserved: block 10.42.3.0/24, which node node1 gives no addresses from"},
		"in nobody's block":            {asks("10.42.77.5"), nil, "AddressNotReserved: in no node's block; IPPool default reserve"},
		"assigned to another node":     {asks("10.200.2.5"), nil, "AddressOnOtherNode: node node4"},

		"reserved":                    {asks("10.42.9.3"), nil, "block fd00:42:0:1::/64, address 10.42.9.3, lease 10.42.9.3/32 of default for prod/db-0"},
		"reserved, both families":     {asks("10.42.9.3", "fd00:42:0:9::3"), nil, "address 10.42.9.3, address fd00:42:0:9::3, lease 10.42.9.3/32 of default for prod/db-0, lease fd00:42:0:9::3/128 of default for prod/db-0"},
		"reserved in our block":       {asks("10.42.1.20"), nil, "block fd00:42:0:1::/64, address 10.42.1.20, lease 10.42.1.20/32 of default for prod/db-0"},
		"reserved for other nodes":    {asks("10.97.0.20"), nil, "PoolNotForNode: IPPool remote, which does not select node node1"},
		"reserved, another pod's":     {asks("10.42.9.5"), nil, "AddressInUse: pod prod/db-9 on node node2 (SubnetLease 10-42-9-5-32)"},
		"reserved, ours elsewhere":    {asks("10.42.9.6"), nil, "block fd00:42:0:1::/64, address 10.42.9.6, take over 10.42.9.6/32"},
		"reserved, ours and here":     {asks("10.42.9.7"), nil, "block fd00:42:0:1::/64, address 10.42.9.7"},
		"reserved, leased as a block": {asks("10.42.9.3"), leases(leaseOf("10.42.9.3/32", "node2", "default", "")), "AddressInUse: leased as a block by node node2"},
		"reserved, the cluster assigns": {asks("10.42.9.3"), func(v *View) { v.Served = []cluster.Lease{leaseOf("10.200.1.0/24", "node1", "", "")} },
			"address 10.42.9.3, lease 10.42.9.3/32 of default for prod/db-0"},

		"sticky, the first time":       {sticky, nil, normal + ", keep"},
		"sticky, in our block":         {sticky, claims("10.42.1.5", "fd00:42:0:1::5"), normal + ", address 10.42.1.5, address fd00:42:0:1::5"},
		"sticky, of one family":        {sticky, claims("10.42.1.5"), normal + ", address 10.42.1.5"},
		"sticky, back in our block":    {sticky, claims("10.42.1.7"), normal + ", address 10.42.1.7, drop 10.42.1.7/32"},
		"sticky, in another's block":   {sticky, claims("10.42.2.5", "fd00:42:0:2::5"), "address 10.42.2.5, address fd00:42:0:2::5, lease 10.42.2.5/32 of default for prod/db-0, lease fd00:42:0:2::5/128 of default for prod/db-0"},
		"sticky, in nobody's block":    {sticky, claims("10.42.77.5"), "block fd00:42:0:1::/64, address 10.42.77.5, lease 10.42.77.5/32 of default for prod/db-0"},
		"sticky, in a drained block":   {sticky, claims("10.42.3.5"), "block fd00:42:0:1::/64, address 10.42.3.5, lease 10.42.3.5/32 of default for prod/db-0"},
		"sticky, assigned elsewhere":   {sticky, claims("10.200.2.5"), "block fd00:42:0:1::/64, address 10.200.2.5, lease 10.200.2.5/32 of  for prod/db-0"},
		"sticky, ours elsewhere":       {sticky, claims("10.42.9.6"), "block fd00:42:0:1::/64, address 10.42.9.6, take over 10.42.9.6/32"},
		"sticky, the pool is gone":     {sticky, claims("10.1.2.3"), "AddressOutsidePools: AddressClaim prod/db-0: 10.1.2.3 is in no IPPool; delete the claim"},
		"sticky, the pool is not ours": {sticky, claims("10.97.0.5"), "PoolNotForNode: AddressClaim prod/db-0"},
		"sticky, another has it too":   {sticky, claims("10.42.1.9"), "AddressInUse: AddressClaim prod/db-7"},
		"sticky, another runs with it": {sticky, claims("10.42.1.8"), "AddressInUse: prod/db-9; delete the claim"},
		"sticky, now a gateway":        {sticky, claims("10.42.2.1"), "AddressUnusable: delete the claim"},
		"sticky, a bare pod":           {sticky, func(v *View) { v.Pod.Controller = cluster.Owner{} }, "StickyWithoutController: prod/db-0"},
		"sticky in a pool":             {Wish{Sticky: true, Pool: "public"}, nil, "block 10.99.0.16/28, keep"},
		"sticky in a pool, full":       {Wish{Sticky: true, Pool: "public"}, full("10.99.0.16/28"), "demand public"},
		"sticky in a pool, kept":       {Wish{Sticky: true, Pool: "public"}, claims("10.99.0.35"), "address 10.99.0.35, lease 10.99.0.35/32 of public for prod/db-0"},
		"sticky, kept outside of it":   {Wish{Sticky: true, Pool: "public"}, claims("10.42.1.5"), "AddressOutsidePools: IPPool public; delete the claim"},
		"sticky and fixed, new":        {Wish{Sticky: true, Addresses: asks("10.42.9.3").Addresses}, nil, "block fd00:42:0:1::/64, address 10.42.9.3, lease 10.42.9.3/32 of default for prod/db-0, keep"},
		"sticky and fixed, agreed":     {Wish{Sticky: true, Addresses: asks("10.42.2.5").Addresses}, claims("10.42.2.5"), "block fd00:42:0:1::/64, address 10.42.2.5, lease 10.42.2.5/32 of default for prod/db-0"},
		"sticky and fixed, different":  {Wish{Sticky: true, Addresses: asks("10.42.9.3").Addresses}, claims("10.42.2.5"), "ClaimDiffers: 10.42.9.3 is not 10.42.2.5; AddressClaim prod/db-0"},
		"one fixed, the other kept":    {Wish{Sticky: true, Addresses: asks("10.42.1.5").Addresses}, claims("fd00:42:0:2::5"), "block 10.42.1.0/24, address 10.42.1.5, address fd00:42:0:2::5, lease fd00:42:0:2::5/128 of default for prod/db-0"},
		"fixed, kept, but not sticky":  {asks("10.42.2.5"), claims("10.42.2.5"), "block fd00:42:0:1::/64, address 10.42.2.5, lease 10.42.2.5/32 of default for prod/db-0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := view()
			if c.change != nil {
				c.change(&v)
			}
			got, err := Resolve(c.wish, v, freeIn(v))
			expect(t, describe(got), err, c.want)
		})
	}
}

// expect compares with an answer, or with "Reason: part; part" of a refusal.
func expect(t *testing.T, got string, err error, want string) {
	t.Helper()
	reason, parts, refused := strings.Cut(want, ": ")
	if refused = refused || strings.HasPrefix(want, "Address"); !refused {
		if err != nil || got != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
		return
	}
	var re *RefusedError
	if !errors.As(err, &re) || re.Reason != reason || got != "" {
		t.Fatalf("got %s, %v, want %s", got, err, reason)
	}
	for part := range strings.SplitSeq(parts, "; ") {
		if !strings.Contains(re.Msg, part) {
			t.Errorf("no %q in %q", part, re.Msg)
		}
	}
}

func claims(addrs ...string) func(*View) {
	return func(v *View) { v.Claims["prod/db-0"] = claimOf("db-0", addrs...) }
}

func leases(list ...cluster.Lease) func(*View) {
	return func(v *View) {
		for _, l := range list {
			v.Leases[l.Name()] = l
		}
	}
}

// full marks a block by a version, for freeIn.
func full(block string) func(*View) {
	return func(v *View) {
		i := slices.IndexFunc(v.Served, func(l cluster.Lease) bool { return l.Subnet == subnet(block) })
		v.Served[i].Version = "full"
	}
}

func freeIn(v View) func(cluster.Lease) uint64 {
	return func(l cluster.Lease) uint64 {
		served := slices.ContainsFunc(v.Served, func(s cluster.Lease) bool { return s.Subnet == l.Subnet })
		if !served {
			panic("asked about " + l.Subnet.String())
		}
		if l.Version == "full" {
			return 0
		}
		return 1
	}
}

// A pod that asks for no pool does not make IPAM count.
func TestFreeIsNotAskedInVain(t *testing.T) {
	for _, w := range []Wish{{}, sticky, asks("10.42.1.5"), {Pool: "public", Addresses: asks("10.99.0.20").Addresses}} {
		if _, err := Resolve(w, view(), func(cluster.Lease) uint64 { t.Errorf("%+v: asked", w); return 1 }); err != nil {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

func TestAvoid(t *testing.T) {
	v := view()
	v.Claims["prod/db-8"] = claimOf("db-8", "10.42.9.9") // as prod/db-7 does
	v.Claims["prod/db-0"] = claimOf("db-0", "10.42.1.7") // as its lease says
	avoid := HoldersOf(v.Claims, v.Leases).Avoid("prod/db-0", asks("10.42.1.7", "10.42.2.5").Addresses)
	for a, want := range map[string]bool{
		"10.42.1.5": false, "10.42.1.7": false, "10.42.9.6": true, "10.42.2.5": false, "10.42.1.0": false,
		"10.42.1.8": true, "10.42.1.9": true, "10.42.9.5": true, "10.42.9.9": true,
	} {
		if avoid(addr(a)) != want {
			t.Errorf("avoid %s: %t, want %t", a, !want, want)
		}
	}
	both := asks("10.42.9.9").Addresses
	holders := HoldersOf(v.Claims, v.Leases)
	if !holders.Avoid("prod/db-7", both)(both[0]) || !holders.Avoid("prod/db-8", both)(both[0]) || !holders.Avoid("", both)(both[0]) {
		t.Error("of two that hold an address, one may have it")
	}
}
