// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/cluster"
)

const (
	node1      = "self node1 uplink0=198.18.1.11/24,1500"
	node1IPv6  = "self node1 uplink0=fd00:1::11/64,1500"
	node1Dual  = "self node1 uplink0=198.18.1.11/24,1500 uplink0=fd00:1::11/64,1500"
	everybody  = "node node1 node2 node3"
	near       = " at=198.18.1.12"
	far        = " at=198.18.2.12"
	lease2     = "lease 10.42.5.0/24 node2"
	lease2IPv6 = "lease fd00:42:0:5::/64 node2"

	origin2     = " # SubnetLease 10-42-5-0-24 of node2"
	origin2IPv6 = " # SubnetLease fd00-42-0-5-0-0-0-0-64 of node2"
	reach2      = "reach 10-42-5-0-24 10.42.5.0/24 of node2: "
	reach2IPv6  = "reach fd00-42-0-5-0-0-0-0-64 fd00:42:0:5::/64 of node2: "
)

// rule is some commands, and lines that must follow or must not.
type rule struct {
	name  string
	say   []string
	shows []string // whole lines
	hides []string // parts of lines
}

func checkRules(t *testing.T, rules []rule) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			w, m, held := newWorld(), NewMap(), newObjects()
			for _, command := range r.say {
				w.run(t, m, command)
			}
			if _, err := fold(held, m.Updates()); err != nil {
				t.Fatal(err)
			}
			if err := w.check(m, held); err != nil {
				t.Fatal(err)
			}
			lines := slices.Concat(describe(held), describeReach(m.Reach()), describeRejected(m.Rejected()))
			all := strings.Join(lines, "\n")
			for _, want := range r.shows {
				if !slices.Contains(lines, want) {
					t.Errorf("no line\n  %s\nin\n%s", want, all)
				}
			}
			for _, part := range r.hides {
				if strings.Contains(all, part) {
					t.Errorf("%q in\n%s", part, all)
				}
			}
		})
	}
}

func TestWay(t *testing.T) {
	native := []string{
		reach2 + "native via 198.18.1.12 dev uplink0",
		"route 10.42.5.0/24 via 198.18.1.12 dev uplink0" + origin2,
	}
	vxlan := []string{
		reach2 + "vxlan via 198.18.2.12 dev weft-vxlan",
		"route 10.42.5.0/24 via 10.42.5.1 dev weft-vxlan" + origin2,
		"neighbour 10.42.5.1 lladdr <node2> dev weft-vxlan" + origin2,
		"fdb <node2> dst 198.18.2.12 dev weft-vxlan # Node node2",
	}
	noVXLAN := []string{"neighbour", "fdb"}
	checkRules(t, []rule{
		{"auto, on the segment", []string{node1, everybody, lease2 + near}, native, noVXLAN},
		{"auto, elsewhere", []string{node1, everybody, lease2 + far}, vxlan, nil},
		{"auto, on the segment, without VTEP", []string{node1, everybody, lease2 + near + " vtep=none"}, native, noVXLAN},
		{"auto, elsewhere, without VTEP", []string{node1, everybody, lease2 + far + " vtep=none"}, []string{
			reach2 + "unreachable: native over IPv4: 198.18.2.12 is not on 198.18.1.0/24, the network of uplink0; native over IPv6: node1 has no address; VXLAN: node2 has no VTEP",
		}, []string{"route", "neighbour", "fdb"}},
		{"auto, another VNI, on the segment", []string{node1, everybody, lease2 + near + " vtep=7:8472"}, native, noVXLAN},
		{"auto, another port, elsewhere", []string{node1, everybody, lease2 + far + " vtep=1:4789"}, []string{
			reach2 + "unreachable: native over IPv4: 198.18.2.12 is not on 198.18.1.0/24, the network of uplink0; native over IPv6: node1 has no address; VXLAN: node2 has VNI 1 and port 4789, node1 has VNI 1 and port 8472",
		}, []string{"route", "neighbour", "fdb", "rejected"}},
		{"vxlan, on the segment", []string{node1 + " backend=vxlan", everybody, lease2 + near}, []string{
			reach2 + "vxlan via 198.18.1.12 dev weft-vxlan",
			"fdb <node2> dst 198.18.1.12 dev weft-vxlan # Node node2",
		}, []string{"dev uplink0"}},
		{"vxlan, on the segment, without VTEP", []string{node1 + " backend=vxlan", everybody, lease2 + near + " vtep=none"}, native, noVXLAN},
		{"vxlan, on the segment, another VNI", []string{node1 + " backend=vxlan", everybody, lease2 + near + " vtep=7:8472"}, []string{
			reach2 + "unreachable: native: backend vxlan takes it to nodes without VTEP only; VXLAN: node2 has VNI 7 and port 8472, node1 has VNI 1 and port 8472",
		}, []string{"route", "neighbour", "fdb"}},
		{"native, on the segment", []string{node1 + " backend=native", everybody, lease2 + near}, native, []string{"neighbour", "fdb", "link weft"}},
		{"native, elsewhere", []string{node1 + " backend=native", everybody, lease2 + far}, []string{
			reach2 + "unreachable: native over IPv4: 198.18.2.12 is not on 198.18.1.0/24, the network of uplink0; native over IPv6: node1 has no address; VXLAN: backend native does not take it",
		}, []string{"route", "neighbour", "fdb", "link weft"}},
		{"a node without addresses", []string{node1Dual, everybody, lease2}, []string{
			reach2 + "unreachable: native over IPv4: node2 has no address; native over IPv6: node2 has no address; VXLAN: node1 and node2 have no address of the same family",
		}, []string{"route"}},
		{"this node has no underlay", []string{"self node1", everybody, lease2 + near}, []string{
			reach2 + "unreachable: native over IPv4: node1 has no address; native over IPv6: node1 has no address; VXLAN: node1 and node2 have no address of the same family",
		}, []string{"route", "link weft"}},
		{"each lease by its own addresses", []string{node1, everybody, lease2 + far, "lease 10.42.6.0/24 node2" + near}, append([]string{
			"route 10.42.6.0/24 via 198.18.1.12 dev uplink0 # SubnetLease 10-42-6-0-24 of node2",
		}, vxlan...), nil},
	})
}

func TestFamilies(t *testing.T) {
	checkRules(t, []rule{
		{"IPv6 pods, natively", []string{node1Dual, everybody, lease2IPv6 + " at=198.18.1.12,fd00:1::12"}, []string{
			"route fd00:42:0:5::/64 via fd00:1::12 dev uplink0" + origin2IPv6,
			reach2IPv6 + "native via fd00:1::12 dev uplink0",
		}, []string{"neighbour", "fdb"}},
		{"IPv6 pods, not over an IPv4 gateway", []string{node1Dual, everybody, lease2IPv6 + " at=198.18.1.12,fd00:2::12"}, []string{
			"route fd00:42:0:5::/64 via fd00:42:0:5::1 dev weft-vxlan" + origin2IPv6,
			"neighbour fd00:42:0:5::1 lladdr <node2> dev weft-vxlan" + origin2IPv6,
			"fdb <node2> dst 198.18.1.12 dev weft-vxlan # Node node2",
		}, []string{"dev uplink0"}},
		{"IPv6 pods without IPv6 underlay and VTEP", []string{node1, everybody, lease2IPv6 + near + " vtep=none"}, []string{
			reach2IPv6 + "unreachable: native over IPv6: node1 has no address; VXLAN: node2 has no VTEP",
		}, []string{"route"}},
		{"IPv4 pods over an IPv4 gateway first", []string{node1Dual, everybody, lease2 + " at=198.18.1.12,fd00:1::12"}, []string{
			"route 10.42.5.0/24 via 198.18.1.12 dev uplink0" + origin2,
		}, nil},
		{"IPv4 pods over an IPv6 gateway", []string{node1Dual, everybody, lease2 + " at=198.18.2.12,fd00:1::12"}, []string{
			"route 10.42.5.0/24 via fd00:1::12 dev uplink0" + origin2,
			reach2 + "native via fd00:1::12 dev uplink0",
		}, []string{"neighbour", "fdb"}},
		{"VXLAN over IPv4 first", []string{node1Dual, everybody, lease2 + " at=198.18.2.12,fd00:2::12"}, []string{
			"fdb <node2> dst 198.18.2.12 dev weft-vxlan # Node node2",
		}, []string{"weft-vxlan6"}},
		{"VXLAN over IPv6 to a peer that has nothing else", []string{node1Dual, everybody, lease2 + " at=fd00:2::12"}, []string{
			"route 10.42.5.0/24 via 10.42.5.1 dev weft-vxlan6" + origin2,
			"neighbour 10.42.5.1 lladdr <node2> dev weft-vxlan6" + origin2,
			"fdb <node2> dst fd00:2::12 dev weft-vxlan6 # Node node2",
			reach2 + "vxlan via fd00:2::12 dev weft-vxlan6",
		}, nil},
		{"VXLAN over IPv6 from a node that has nothing else", []string{node1IPv6, everybody, lease2 + " at=198.18.2.12,fd00:2::12"}, []string{
			"fdb <node2> dst fd00:2::12 dev weft-vxlan6 # Node node2",
		}, []string{"dev weft-vxlan "}},
		{"no family in common", []string{node1, everybody, lease2 + " at=fd00:2::12"}, []string{
			reach2 + "unreachable: native over IPv4: node2 has no address; native over IPv6: node1 has no address; VXLAN: node1 and node2 have no address of the same family",
		}, []string{"route"}},
	})
}

func TestDevices(t *testing.T) {
	const (
		v4 = "link weft-vxlan vni 1 port 8472 local 198.18.1.11 mac <node1> mtu 1450 # Node node1"
		v6 = "link weft-vxlan6 vni 1 port 8472 local fd00:1::11 mac <node1> mtu 1430 # Node node1"
	)
	checkRules(t, []rule{
		{"without a peer", []string{node1Dual}, []string{v4}, []string{"weft-vxlan6"}},
		{"IPv6 only", []string{node1IPv6}, []string{v6}, []string{"link weft-vxlan "}},
		{"backend vxlan", []string{node1 + " backend=vxlan"}, []string{v4}, nil},
		{"backend native", []string{node1Dual + " backend=native", everybody, lease2 + " at=fd00:2::12"}, nil, []string{"link weft"}},
		{"no underlay", []string{"self node1"}, nil, []string{"link weft"}},
		{"a peer has only IPv6", []string{node1Dual, everybody, lease2 + " at=fd00:2::12"}, []string{v4, v6}, nil},
		{"a peer that is on the segment needs none", []string{node1Dual, everybody, lease2 + " at=fd00:1::12"}, []string{v4}, []string{"weft-vxlan6"}},
		{"the only peer with IPv6 alone is gone", []string{node1Dual, everybody, lease2 + " at=fd00:2::12", "drop 10.42.5.0/24"}, []string{v4}, []string{"weft-vxlan6"}},
		{"as configured", []string{node1 + " vni=9 port=4789 mtu=1400 checksum"}, []string{
			"link weft-vxlan vni 9 port 4789 local 198.18.1.11 mac <node1> mtu 1400 checksum # Node node1",
		}, nil},
		{"as configured, less than IPv6 needs", []string{node1 + " mtu=1000"}, []string{
			"link weft-vxlan vni 1 port 8472 local 198.18.1.11 mac <node1> mtu 1000 # Node node1",
		}, nil},
		{"of a narrow underlay", []string{"self node1 uplink0=198.18.1.11/24,1329"}, []string{
			"link weft-vxlan vni 1 port 8472 local 198.18.1.11 mac <node1> mtu 1280 # Node node1",
		}, nil},
		{"of an underlay just wide enough", []string{"self node1 uplink0=198.18.1.11/24,1331"}, []string{
			"link weft-vxlan vni 1 port 8472 local 198.18.1.11 mac <node1> mtu 1281 # Node node1",
		}, nil},
		{"each by its own underlay", []string{"self node1 uplink0=198.18.1.11/24,1500 uplink1=fd00:1::11/64,9000", everybody, lease2 + " at=fd00:2::12"}, []string{
			v4, "link weft-vxlan6 vni 1 port 8472 local fd00:1::11 mac <node1> mtu 8930 # Node node1",
		}, nil},
	})
}

func TestOwnLeases(t *testing.T) {
	const (
		own       = "lease 10.42.3.0/24 node1 at=198.18.1.11"
		own6      = "lease fd00:42:0:3::/64 node1 at=198.18.1.11"
		ownOrigin = " # SubnetLease 10-42-3-0-24 of node1"
	)
	checkRules(t, []rule{
		{"before the node is known", []string{node1, own, own6}, []string{
			"route unreachable 10.42.3.0/24" + ownOrigin,
			"route unreachable fd00:42:0:3::/64 # SubnetLease fd00-42-0-3-0-0-0-0-64 of node1",
			"address 10.42.3.1 dev weft-vxlan" + ownOrigin,
			"address fd00:42:0:3::1 dev weft-vxlan # SubnetLease fd00-42-0-3-0-0-0-0-64 of node1",
			"reach 10-42-3-0-24 10.42.3.0/24 of node1: local",
		}, []string{"weft-vxlan6", "rejected"}},
		{"on every device", []string{node1Dual, everybody, own, lease2 + " at=fd00:2::12"}, []string{
			"address 10.42.3.1 dev weft-vxlan" + ownOrigin,
			"address 10.42.3.1 dev weft-vxlan6" + ownOrigin,
		}, nil},
		{"without a device", []string{node1 + " backend=native", own}, []string{
			"route unreachable 10.42.3.0/24" + ownOrigin,
		}, []string{"address"}},
		{"with another VNI", []string{node1, own + " vtep=7:8472"}, []string{
			"route unreachable 10.42.3.0/24" + ownOrigin,
		}, []string{"rejected"}},
		{"rejected", []string{node1, everybody, "lease 10.42.0.0/16 node2 at=198.18.1.12", own + " created=1"}, []string{
			"reach 10-42-3-0-24 10.42.3.0/24 of node1: unreachable: overlaps SubnetLease 10-42-0-0-16 of node2, which is older",
			"rejected 10-42-3-0-24: overlaps SubnetLease 10-42-0-0-16 of node2, which is older",
		}, []string{"10.42.3.1", "route unreachable"}},
		{"of a node of which nothing else is known", []string{"self node1", own}, []string{
			"route unreachable 10.42.3.0/24" + ownOrigin,
		}, []string{"link weft", "address"}},
	})
}

func TestRejected(t *testing.T) {
	nothing := []string{"route", "neighbour", "fdb", "rejected"}
	checkRules(t, []rule{
		{"unknown node", []string{node1, "node node3", lease2 + near}, []string{
			reach2 + "unreachable: Node node2 is not known",
		}, nothing},
		{"node that is not known any more", []string{node1, everybody, lease2 + far, "forget node2"}, []string{
			reach2 + "unreachable: Node node2 is not known",
		}, nothing},
		{"overlaps an older one", []string{node1, everybody, lease2 + near + " created=2", "lease 10.42.4.0/23 node3 at=198.18.1.13 created=1"}, []string{
			reach2 + "unreachable: overlaps SubnetLease 10-42-4-0-23 of node3, which is older",
			"route 10.42.4.0/23 via 198.18.1.13 dev uplink0 # SubnetLease 10-42-4-0-23 of node3",
		}, []string{"route 10.42.5.0/24"}},
		{"overlaps an older one that it contains", []string{node1, everybody, lease2 + near + " created=1", "lease 10.42.4.0/23 node3 at=198.18.1.13 created=2"}, []string{
			"reach 10-42-4-0-23 10.42.4.0/23 of node3: unreachable: overlaps SubnetLease 10-42-5-0-24 of node2, which is older",
			"route 10.42.5.0/24 via 198.18.1.12 dev uplink0" + origin2,
		}, []string{"route 10.42.4.0/23"}},
		{"overlaps one as old", []string{node1, everybody, lease2 + near, "lease 10.42.4.0/23 node3 at=198.18.1.13"}, []string{
			reach2 + "unreachable: overlaps SubnetLease 10-42-4-0-23 of node3, which is as old and has the lesser name",
		}, []string{"route 10.42.5.0/24"}},
		{"overlaps several older ones: the first by subnet", []string{node1, everybody, lease2 + near + " created=1",
			"lease 10.42.4.0/24 node3 at=198.18.1.13 created=2", "lease 10.42.4.0/23 node3 at=198.18.1.13 created=3"}, []string{
			"reach 10-42-4-0-23 10.42.4.0/23 of node3: unreachable: overlaps SubnetLease 10-42-4-0-24 of node3, which is older",
		}, nil},
		{"a rejected lease stands in nobody's way", []string{node1, everybody, lease2 + near + " created=3",
			"lease 10.42.4.0/23 node3 at=198.18.1.13 created=2", "lease 10.42.4.0/24 node3 at=198.18.1.13 created=1"}, []string{
			"route 10.42.5.0/24 via 198.18.1.12 dev uplink0" + origin2,
			"route 10.42.4.0/24 via 198.18.1.13 dev uplink0 # SubnetLease 10-42-4-0-24 of node3",
		}, []string{"route 10.42.4.0/23"}},
		{"nor does one of an unknown node", []string{node1, "node node2", lease2 + near + " created=2", "lease 10.42.4.0/23 node3 created=1"}, []string{
			"route 10.42.5.0/24 via 198.18.1.12 dev uplink0" + origin2,
		}, nil},
		// On the other nodes that lease stands: all must agree on the holder.
		{"one that is rejected here alone does", []string{node1, everybody, "lease 198.18.0.0/15 node2 at=172.16.1.12 created=1", "lease 198.19.0.0/24 node3 at=198.18.1.13 created=2"}, []string{
			"reach 198-18-0-0-15 198.18.0.0/15 of node2: unreachable: overlaps 198.18.1.0/24, the network of uplink0 on node1, which would be cut off",
			"reach 198-19-0-0-24 198.19.0.0/24 of node3: unreachable: overlaps SubnetLease 198-18-0-0-15 of node2, which is older",
		}, nothing},
		{"overlaps this node's network", []string{node1Dual, everybody, "lease fd00:1::/72 node2" + near}, []string{
			"reach fd00-1-0-0-0-0-0-0-72 fd00:1::/72 of node2: unreachable: overlaps fd00:1::/64, the network of uplink0 on node1, which would be cut off",
		}, nothing},
		{"of this node, overlaps this node's network", []string{node1, "lease 198.18.1.128/25 node1"}, []string{
			"rejected 198-18-1-128-25: overlaps 198.18.1.0/24, the network of uplink0 on node1, which would be cut off",
		}, []string{"route", "address"}},
		{"has this node's address", []string{node1, everybody, lease2 + " at=198.18.1.11"}, []string{
			reach2 + "unreachable: node address 198.18.1.11 is that of node1",
		}, nothing},
		{"has one address of this node", []string{node1Dual, everybody, lease2 + " at=198.18.1.12,fd00:1::11"}, []string{
			reach2 + "unreachable: node address fd00:1::11 is that of node1",
		}, nothing},
		{"has another node's VTEP", []string{node1, everybody, lease2 + near + " vtep=02:00:00:00:00:01"}, []string{
			reach2 + "unreachable: the VTEP's MAC is 02:00:00:00:00:01; that of node2 is " + cluster.VTEPMAC("node2").String(),
		}, nothing},
		{"has no room for a gateway", []string{node1, everybody, "lease 10.42.5.0/31 node2" + near}, []string{
			"reach 10-42-5-0-31 10.42.5.0/31 of node2: unreachable: 10.42.5.0/31 has no room for a gateway and pods; want /30 or larger",
		}, nothing},
		{"has just enough room", []string{node1, everybody, "lease fd00:42::/126 node2" + far}, []string{
			"route fd00:42::/126 via fd00:42::1 dev weft-vxlan # SubnetLease fd00-42-0-0-0-0-0-0-126 of node2",
		}, nil},
	})
}

// TestNodeAddresses: leases that claim node addresses of others.
func TestNodeAddresses(t *testing.T) {
	const (
		garbage       = "lease 198.18.2.0/24 node3 at=198.18.3.13"
		garbageReach  = "reach 198-18-2-0-24 198.18.2.0/24 of node3: "
		garbageRoute  = "route 198.18.2.0/24"
		standing      = "route 10.42.5.0/24 via 10.42.5.1 dev weft-vxlan" + origin2
		stray         = "lease 10.42.6.0/24 node3 at=10.42.5.7"
		strayReach    = "reach 10-42-6-0-24 10.42.6.0/24 of node3: "
		garbageIPv6   = "lease fd00:2::/64 node3 at=198.18.3.13"
		garbageReach6 = "reach fd00-2-0-0-0-0-0-0-64 fd00:2::/64 of node3: "
	)
	checkRules(t, []rule{
		{"contains that of an older lease", []string{node1, everybody, lease2 + far, garbage + " created=1"}, []string{
			garbageReach + "unreachable: contains node address 198.18.2.12 of SubnetLease 10-42-5-0-24 of node2, which is older", standing,
		}, []string{garbageRoute}},
		{"contains that of a lease as old", []string{node1, everybody, lease2 + far, garbage}, []string{
			garbageReach + "unreachable: contains node address 198.18.2.12 of SubnetLease 10-42-5-0-24 of node2, which is as old and has the lesser name", standing,
		}, []string{garbageRoute}},
		{"contains that of a younger lease", []string{node1, everybody, lease2 + far + " created=2", garbage + " created=1"}, []string{
			reach2 + "unreachable: its node address 198.18.2.12 lies in the subnet of SubnetLease 198-18-2-0-24 of node3, which is older",
			garbageRoute + " via 198.18.2.1 dev weft-vxlan # SubnetLease 198-18-2-0-24 of node3",
		}, []string{"route 10.42.5.0/24"}},
		{"contains an IPv6 one of an IPv4 lease", []string{node1, everybody, lease2 + far + ",fd00:2::12", garbageIPv6 + " created=1"}, []string{
			garbageReach6 + "unreachable: contains node address fd00:2::12 of SubnetLease 10-42-5-0-24 of node2, which is older", standing,
		}, []string{"route fd00"}},
		{"contains those of several older ones: the first by subnet", []string{node1, everybody, lease2 + far, garbage + " created=4",
			"lease 10.42.4.0/24 node2 at=198.18.2.13 created=3"}, []string{
			garbageReach + "unreachable: contains node address 198.18.2.13 of SubnetLease 10-42-4-0-24 of node2, which is older", standing,
		}, []string{garbageRoute}},
		{"lies in an older lease", []string{node1, everybody, lease2 + far, stray + " created=1"}, []string{
			strayReach + "unreachable: its node address 10.42.5.7 lies in the subnet of SubnetLease 10-42-5-0-24 of node2, which is older", standing,
		}, []string{"route 10.42.6.0/24"}},
		{"lies in a lease as old", []string{node1, everybody, lease2 + far, stray}, []string{
			strayReach + "unreachable: its node address 10.42.5.7 lies in the subnet of SubnetLease 10-42-5-0-24 of node2, which is as old and has the lesser name", standing,
		}, []string{"route 10.42.6.0/24"}},
		{"lies in a younger lease", []string{node1, everybody, lease2 + far + " created=2", stray + " created=1"}, []string{
			reach2 + "unreachable: contains node address 10.42.5.7 of SubnetLease 10-42-6-0-24 of node3, which is older",
			"route 10.42.6.0/24 via 10.42.6.1 dev weft-vxlan # SubnetLease 10-42-6-0-24 of node3",
		}, []string{"route 10.42.5.0/24"}},
		{"lies in this node's lease", []string{node1, everybody, "lease 10.42.3.0/24 node1 at=198.18.1.11", "lease 10.42.5.0/24 node2 at=10.42.3.7 created=1"}, []string{
			reach2 + "unreachable: its node address 10.42.3.7 lies in the subnet of SubnetLease 10-42-3-0-24 of node1, which is older",
			"reach 10-42-3-0-24 10.42.3.0/24 of node1: local",
		}, nil},
		{"lies in another lease of the same node", []string{node1, everybody, lease2 + far, "lease 10.42.6.0/24 node2 at=10.42.5.7 created=1"}, []string{
			"reach 10-42-6-0-24 10.42.6.0/24 of node2: unreachable: its node address 10.42.5.7 lies in the subnet of SubnetLease 10-42-5-0-24 of node2, which is older", standing,
		}, nil},
		{"lies in the lease itself", []string{node1, everybody, "lease 10.42.5.0/24 node2 at=10.42.5.7 created=1",
			"lease 10.42.4.0/23 node3" + far + " created=2"}, []string{
			reach2 + "unreachable: contains its own node's address 10.42.5.7",
			"route 10.42.4.0/23 via 10.42.4.1 dev weft-vxlan # SubnetLease 10-42-4-0-23 of node3",
		}, []string{"route 10.42.5.0/24"}},
		{"two leases have the same", []string{node1, everybody, lease2 + far, "lease 10.42.6.0/24 node3" + far}, []string{
			standing, "route 10.42.6.0/24 via 10.42.6.1 dev weft-vxlan # SubnetLease 10-42-6-0-24 of node3",
		}, nil},
		{"a rejected lease stands in nobody's way", []string{node1, everybody, lease2 + far + " created=3", garbage + " created=2",
			"lease 198.18.2.0/25 node2 at=172.16.1.12 created=1"}, []string{
			garbageReach + "unreachable: overlaps SubnetLease 198-18-2-0-25 of node2, which is older",
			reach2 + "unreachable: its node address 198.18.2.12 lies in the subnet of SubnetLease 198-18-2-0-25 of node2, which is older",
		}, []string{garbageRoute}},
		{"nor does one of an unknown node", []string{node1, "node node2", lease2 + far + " created=2", garbage + " created=1"}, []string{
			standing, garbageReach + "unreachable: Node node3 is not known",
		}, nil},
	})
}

// TestOneFDBEntryPerNode: while a node's leases disagree, the youngest of those
// that use the device decides, by age and then by name.
func TestOneFDBEntryPerNode(t *testing.T) {
	const (
		first  = "lease 10.42.5.0/24 node2 at=198.18.2.12"
		second = "lease 10.42.6.0/24 node2 at=198.18.3.12"
	)
	checkRules(t, []rule{
		{"the youngest decides", []string{node1, everybody, first + " created=9", second + " created=8"}, []string{
			"fdb <node2> dst 198.18.2.12 dev weft-vxlan # Node node2",
			"reach 10-42-6-0-24 10.42.6.0/24 of node2: vxlan via 198.18.3.12 dev weft-vxlan",
		}, []string{"dst 198.18.3.12"}},
		{"equal age: the greatest name", []string{node1, everybody, first, second}, []string{
			"fdb <node2> dst 198.18.3.12 dev weft-vxlan # Node node2",
		}, []string{"dst 198.18.2.12"}},
		{"one that is rejected does not count", []string{node1, everybody, first, second, "lease 10.42.6.0/23 node3" + far}, []string{
			"fdb <node2> dst 198.18.2.12 dev weft-vxlan # Node node2",
		}, []string{"dst 198.18.3.12"}},
		{"nor one that goes another way", []string{node1, everybody, first, "lease 10.42.6.0/24 node2" + near}, []string{
			"fdb <node2> dst 198.18.2.12 dev weft-vxlan # Node node2",
		}, []string{"dst 198.18.1.12"}},
		{"the last but one is gone", []string{node1, everybody, first, second, "drop 10.42.6.0/24"}, []string{
			"fdb <node2> dst 198.18.2.12 dev weft-vxlan # Node node2",
		}, nil},
		{"the last is gone", []string{node1, everybody, first, second, "drop 10.42.6.0/24", "drop 10.42.5.0/24"}, nil, []string{"fdb"}},
	})
}
