// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/kernel"
)

func TestVXLANDevice(t *testing.T) {
	w := newWorld(t)
	w.devices()
	for _, c := range []struct {
		name  string
		words []string
	}{
		{topology.VXLANDevice4, []string{
			"vxlan id 7 local 192.0.2.10 ", "dstport 8472", "nolearning", "mtu 1450", "UP,LOWER_UP", "link/ether 02:00:00:00:00:01",
			"addrgenmode none", "alias weft /run/weft overlay"}},
		{topology.VXLANDevice6, []string{"vxlan id 7 local 2001:db8::10 ", "mtu 1430", "nolearning"}},
	} {
		shown := w.ip("-d", "link", "show", c.name)
		for _, word := range c.words {
			if !strings.Contains(shown, word) {
				t.Errorf("%s lacks %q: %s", c.name, word, shown)
			}
		}
		if addrs := w.ip("addr", "show", c.name); strings.Contains(addrs, "inet") {
			t.Errorf("%s has an address: %s", c.name, addrs)
		}
	}
}

// What can change in place keeps what is on the device.
func TestVXLANDeviceChangesInPlace(t *testing.T) {
	w := newWorld(t)
	w.devices(topology.VXLANDevice4)
	links, fdb := w.h.VXLANLinks(instance), w.h.FDB()
	apply(t, fdb, delta.Add, topology.FDBKey{Dev: topology.VXLANDevice4, MAC: mac2}, topology.FDB{Dst: netip.MustParseAddr("198.18.2.12")})
	index := func() string { return strings.Fields(w.ip("-o", "link", "show", topology.VXLANDevice4))[0] }
	before := index()
	want := device(topology.VXLANDevice4)
	want.Local, want.MTU, want.MAC, want.Checksum = netip.MustParseAddr("192.0.2.99"), 1400, mac2, false
	apply(t, links, delta.Change, topology.VXLANDevice4, want)
	if index() != before || len(observe(t, fdb)) != 1 {
		t.Error("the device was made anew")
	}
	want.Port++
	apply(t, links, delta.Change, topology.VXLANDevice4, want)
	if index() == before || len(observe(t, fdb)) != 0 {
		t.Error("the device was not made anew, but has another port")
	}
}

// Whatever somebody does to a device is seen as a difference, and repaired.
func TestVXLANDeviceRepaired(t *testing.T) {
	const dev = topology.VXLANDevice4
	for _, c := range [][]string{
		{"link", "set", dev, "down"},
		{"link", "set", dev, "mtu", "1300"},
		{"link", "set", dev, "address", "02:00:00:00:00:77"},
		{"link", "set", dev, "alias", ""},
		{"link", "set", dev, "type", "vxlan", "learning"},
		{"link", "set", dev, "type", "vxlan", "local", "192.0.2.77"},
		{"link", "set", dev, "type", "vxlan", "remote", "192.0.2.78"},
		{"link", "del", dev},
		{"link", "set", dev, "name", "elsewhere"},
	} {
		t.Run(strings.Join(c[2:], " "), func(t *testing.T) {
			w := newWorld(t)
			w.devices(dev)
			links := w.h.VXLANLinks(instance)
			want := map[topology.LinkKey]topology.Link{dev: device(dev)}
			if got := observe(t, links); !maps.Equal(got, want) {
				t.Fatalf("observed %v", got)
			}
			if c[2] == "name" {
				w.ip("link", "set", dev, "down")
			}
			w.ip(c...)
			if got := observe(t, links); maps.Equal(got, want) {
				t.Fatal("the change is not seen")
			}
			if c[len(c)-1] == "elsewhere" {
				w.ip("link", "del", "elsewhere") // the kernel has no two devices of one VNI and port
			}
			apply(t, links, delta.Change, dev, device(dev))
			if got := observe(t, links); !maps.Equal(got, want) {
				t.Errorf("after the repair %v", got)
			}
		})
	}
}

// A device of another Weft, or of nobody's, is not touched; one that this Weft
// left half made is finished.
func TestVXLANDeviceOwnership(t *testing.T) {
	w := newWorld(t)
	links := w.h.VXLANLinks(instance)
	w.ip("link", "add", topology.VXLANDevice4, "type", "vxlan", "id", "9", "dstport", "8472")
	if got := observe(t, links); got[topology.VXLANDevice4] == device(topology.VXLANDevice4) || len(got) != 1 {
		t.Errorf("half made: %v", got)
	}
	w.devices(topology.VXLANDevice4)

	other := w.h.VXLANLinks("/run/other")
	unchanged := w.unchanged("-d", "link", "show", topology.VXLANDevice4)
	if got := observe(t, other); len(got) != 0 {
		t.Errorf("another Weft's: %v", got)
	}
	var foreign *kernel.ForeignDeviceError
	op := delta.Op[topology.LinkKey, topology.Link]{Verb: delta.Add, Key: topology.VXLANDevice4, Want: device(topology.VXLANDevice4)}
	if err := other.Apply([]delta.Op[topology.LinkKey, topology.Link]{op})[0]; !errors.As(err, &foreign) || foreign.Alias != "weft /run/weft overlay" {
		t.Errorf("error %v", err)
	}
	apply(t, other, delta.Delete, topology.VXLANDevice4, topology.Link{})
	unchanged(t)
}

// An IPv6 address exists once: with another length it is in the way.
func TestFabricAddressOfAnotherLength(t *testing.T) {
	w := newWorld(t)
	w.devices(topology.VXLANDevice4)
	addresses := w.h.FabricAddresses()
	for _, s := range []string{"10.42.3.1/24", "fd00:42:3::1/64"} {
		w.ip("addr", "add", s, "dev", topology.VXLANDevice4)
		if got := observe(t, addresses); len(got) != 0 {
			t.Errorf("%s counts as wanted: %v", s, got)
		}
		k := topology.AddressKey{Dev: topology.VXLANDevice4, Addr: netip.MustParsePrefix(s).Addr()}
		apply(t, addresses, delta.Add, k, topology.Address{})
		if got := observe(t, addresses); len(got) != 1 {
			t.Errorf("after adding: %v", got)
		}
		apply(t, addresses, delta.Delete, k, topology.Address{})
	}
	apply(t, addresses, delta.Add, topology.AddressKey{Dev: topology.VXLANDevice4, Addr: netip.MustParseAddr("fd00:42:4::1")}, topology.Address{})
	if routes := w.ip("-6", "route", "show", "dev", topology.VXLANDevice4); strings.Contains(routes, "fd00:42:4::1") {
		t.Errorf("the address brought a route: %s", routes)
	}
}

// Entries that are not as this driver makes them are seen, and replaced.
func TestTamperedFDBAndNeighbours(t *testing.T) {
	w := newWorld(t)
	w.devices()
	fdb, neighbours := w.h.FDB(), w.h.FabricNeighbours()
	for dev, dst := range map[string]string{topology.VXLANDevice4: "198.18.2.12", topology.VXLANDevice6: "2001:db8:2::12"} {
		k, v := topology.FDBKey{Dev: dev, MAC: mac2}, topology.FDB{Dst: netip.MustParseAddr(dst)}
		for _, how := range []string{"port 9", "vni 8", "via lo"} {
			apply(t, fdb, delta.Add, k, v)
			w.ip(strings.Fields("bridge fdb replace " + mac2.String() + " dev " + dev + " dst " + dst + " self permanent " + how)...)
			if got := observe(t, fdb)[k]; got == v {
				t.Errorf("%s, %s: not seen", dev, how)
			}
			apply(t, fdb, delta.Change, k, v)
			if got := observe(t, fdb)[k]; got != v {
				t.Errorf("%s, %s: after the repair %v", dev, how, got)
			}
		}
		// The entry for all that is unknown is nobody's wish.
		w.ip("bridge", "fdb", "append", "00:00:00:00:00:00", "dev", dev, "dst", dst, "self", "permanent")
		apply(t, fdb, delta.Delete, topology.FDBKey{Dev: dev}, topology.FDB{})
	}
	if got := observe(t, fdb); len(got) != 2 {
		t.Errorf("observed %v", got)
	}
	k, v := topology.NeighbourKey{Dev: topology.VXLANDevice4, Addr: netip.MustParseAddr("10.42.5.1")}, topology.Neighbour{MAC: mac2}
	apply(t, neighbours, delta.Add, k, v)
	w.ip("neigh", "change", "10.42.5.1", "dev", topology.VXLANDevice4, "nud", "stale")
	if got := observe(t, neighbours); len(got) != 0 {
		t.Errorf("an entry that may vanish counts as wanted: %v", got)
	}
	apply(t, neighbours, delta.Add, k, v)
	if got := observe(t, neighbours)[k]; got != v {
		t.Errorf("after the repair %v", got)
	}
}

// A route of our protocol that is not as this driver makes them.
func TestTamperedRoutes(t *testing.T) {
	for _, c := range []struct{ family, args string }{
		{"-4", "10.42.5.0/24 via 10.42.5.1 dev weft-vxlan onlink metric 7"},
		{"-4", "10.42.5.0/24 nexthop via 198.51.100.2 dev uplink nexthop via 10.42.5.1 dev weft-vxlan onlink"},
		{"-4", "blackhole 10.42.5.0/24"},
		{"-6", "fd00:42:5::/64 via fd00:42:5::1 dev weft-vxlan onlink metric 7"},
		{"-6", "fd00:42:5::/64 nexthop via 2001:db8:1::2 dev uplink nexthop via fd00:42:5::1 dev weft-vxlan onlink"},
		{"-6", "blackhole fd00:42:5::/64"},
	} {
		for _, beside := range []bool{false, true} {
			w, s := routesSubject(t)
			k := s.Keys[0]
			if c.family == "-6" {
				k = s.Keys[3]
			}
			if beside {
				if !strings.Contains(c.args, "metric") {
					continue
				}
				apply(t, s.Driver, delta.Add, k, s.Value(k, 0))
			}
			w.ip(append([]string{c.family, "route", "add", "proto", "119"}, strings.Fields(c.args)...)...)
			all := observe(t, s.Driver)
			if got, there := all[k]; !there || got == s.Value(k, 0) || got == (topology.Route{}) {
				t.Errorf("%s: observed %v", c.args, all)
			}
			for _, op := range []delta.Op[topology.RouteKey, topology.Route]{
				{Verb: delta.Change, Key: k, Want: s.Value(k, 0), Have: all[k]},
				{Verb: delta.Delete, Key: k, Have: s.Value(k, 0)},
			} {
				if err := s.Driver.Apply([]delta.Op[topology.RouteKey, topology.Route]{op})[0]; err != nil {
					t.Errorf("%s: %s: %v", c.args, op.Verb, err)
				}
				if got, there := observe(t, s.Driver)[k]; there != (op.Verb != delta.Delete) || got != op.Want {
					t.Errorf("%s: after %s: %v", c.args, op.Verb, got)
				}
			}
			if left := w.ip(c.family, "route", "show", "table", "all", "proto", "119"); left != "" {
				t.Errorf("%s: left behind: %s", c.args, left)
			}
		}
	}
}

// The error names what is in the way.
func TestForeignRouteIsNamed(t *testing.T) {
	w, s := routesSubject(t)
	w.ip("route", "add", "10.42.5.0/24", "via", "198.51.100.9", "dev", "uplink", "onlink", "metric", "50")
	err := s.Driver.Apply([]delta.Op[topology.RouteKey, topology.Route]{{Verb: delta.Add, Key: s.Keys[0], Want: s.Value(s.Keys[0], 0)}})[0]
	var foreign *kernel.ForeignRouteError
	if !errors.As(err, &foreign) || foreign.Device != "uplink" || foreign.Gateway.String() != "198.51.100.9" ||
		foreign.Metric != 50 || foreign.Protocol != 3 {
		t.Errorf("error %v", err)
	}
}

// The host answers for a gateway as long as the route is there, whether it has
// the address or not, and whichever came first.
func TestLocalRouteBesideAnAddress(t *testing.T) {
	for _, a := range []string{"10.42.3.1", "fd00:42:3::1"} {
		w := newWorld(t)
		w.devices(topology.VXLANDevice4)
		routes, addresses := w.h.FabricRoutes(), w.h.FabricAddresses()
		addr := netip.MustParseAddr(a)
		local := topology.RouteKey{Dst: netip.PrefixFrom(addr, addr.BitLen()), Local: true}
		key := topology.AddressKey{Dev: topology.VXLANDevice4, Addr: addr}
		check := func(step string, route, address bool) {
			t.Helper()
			_, r := observe(t, routes)[local]
			_, is := observe(t, addresses)[key]
			if r != route || is != address {
				t.Errorf("%s, %s: route %v, address %v, want %v, %v", a, step, r, is, route, address)
			}
			if route || address {
				w.host.Do(func() { awaitLocal(t, addr) })
			}
		}
		apply(t, addresses, delta.Add, key, topology.Address{})
		check("address", false, true)
		apply(t, routes, delta.Add, local, topology.Route{})
		check("then the route", true, true)
		apply(t, addresses, delta.Delete, key, topology.Address{})
		check("without the address", true, false)
		apply(t, addresses, delta.Add, key, topology.Address{})
		check("with it again", true, true)
		apply(t, routes, delta.Delete, local, topology.Route{})
		check("without the route", false, true)
		apply(t, routes, delta.Add, local, topology.Route{})
		w.ip("link", "set", topology.VXLANDevice4, "down")
		if _, there := observe(t, routes)[local]; !there {
			t.Errorf("%s: the route went down with the device", a)
		}
	}
}

// Damage of any kind shows, and is repaired by a change.
func TestNATDamage(t *testing.T) {
	for _, c := range []string{
		"flush set inet weft sources4",
		"delete element inet weft direct6 { fd00:42::/32 }",
		"add element inet weft sources4 { 192.168.0.0/24 }",
		"flush chain inet weft postrouting",
		"delete table inet weft",
		"flush table inet weft; delete chain inet weft postrouting",
		"add rule inet weft postrouting accept",
	} {
		t.Run(c, func(t *testing.T) {
			w := newWorld(t)
			nat, want := w.h.NAT("weft"), kernel.NATOf(testNode())
			apply(t, nat, delta.Add, "weft", want)
			w.ip("nft", c)
			got, there := observe(t, nat)["weft"]
			if got == want || there == strings.Contains(c, "table inet weft") && !strings.HasPrefix(c, "flush table") {
				t.Errorf("observed %v, there %v", got, there)
			}
			apply(t, nat, delta.Change, "weft", want)
			if got := observe(t, nat)["weft"]; got != want {
				t.Errorf("after the repair %v", got)
			}
			unchanged := w.unchanged("nft", "-a", "list", "ruleset")
			apply(t, nat, delta.Change, "weft", want)
			unchanged(t) // what is right is not made anew
		})
	}
}

// The driver and EnsureNode make the same table.
func TestNATIsWhatEnsureNodeMakes(t *testing.T) {
	w := newWorld(t)
	n := testNode()
	w.ensure(n)
	nat := w.h.NAT(topology.NATKey(n.Table))
	if got, want := observe(t, nat)[topology.NATKey(n.Table)], kernel.NATOf(n); got != want {
		t.Errorf("observed %v, want %v", got, want)
	}
	if got := observe(t, w.h.NAT("weft")); len(got) != 0 {
		t.Errorf("a thin plugin's table is taken for the agent's: %v", got)
	}
}

// A set of many ranges takes several messages.
func TestNATOfManyRanges(t *testing.T) {
	w := newWorld(t)
	n := testNode()
	for i := range 1500 {
		n.Pools = append(n.Pools,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 7), byte(i << 1), 0}), 24),
			netip.MustParsePrefix(fmt.Sprintf("fd01:%x::/64", 2*i)))
	}
	nat := w.h.NAT("weft")
	apply(t, nat, delta.Add, "weft", kernel.NATOf(n))
	if got := observe(t, nat)["weft"]; got != kernel.NATOf(n) {
		t.Error("the table is not as it was made")
	}
}

func TestSysctlsForgetWhatIsNotWanted(t *testing.T) {
	w := newWorld(t)
	d := w.h.Sysctls(kernel.ForwardingIPv4, kernel.ForwardingIPv6)
	apply(t, d, delta.Change, kernel.ForwardingIPv4, "1")
	apply(t, d, delta.Delete, kernel.ForwardingIPv6, "")
	if got := observe(t, d); !maps.Equal(got, map[topology.SysctlKey]topology.Sysctl{kernel.ForwardingIPv4: "1"}) {
		t.Errorf("observed %v", got)
	}
	writeProc(t, w.host, string(kernel.ForwardingIPv4), "0")
	if got := observe(t, d)[kernel.ForwardingIPv4]; got != "0" {
		t.Errorf("observed %q after somebody wrote 0", got)
	}
	apply(t, d, delta.Delete, kernel.ForwardingIPv4, "")
	if v := readProc(t, w, string(kernel.ForwardingIPv4)); v != "0" {
		t.Errorf("deleting wrote %s", v)
	}
}

func TestSetPodMTU(t *testing.T) {
	w := newWorld(t)
	p := w.attached("10.42.3.7", "fd00:42:3::7")
	for _, mtu := range []int{1400, 1400, 9000} {
		if err := w.h.SetPodMTU(p.ns, p.plan.Ifname, p.plan.HostIfname, mtu); err != nil {
			t.Fatal(err)
		}
		owned, err := w.h.Owned()
		if err != nil || len(owned) != 1 || owned[0].MTU != mtu {
			t.Errorf("host end %v, error %v, want MTU %d", owned, err, mtu)
		}
		p.plan.MTU = mtu
		w.noDifference(p, kernel.CompareOptions{MTU: true})
	}
	if err := w.h.SetPodMTU(p.ns, "eth9", p.plan.HostIfname, 1400); err == nil {
		t.Error("an interface that does not exist got an MTU")
	}
}

// A driver that cannot speak to the kernel says so of each operation.
func TestDriversOfAClosedHandle(t *testing.T) {
	w := newWorld(t)
	h := w.open()
	h.Close()
	routes := h.FabricRoutes().Apply([]delta.Op[topology.RouteKey, topology.Route]{{Verb: delta.Delete}, {Verb: delta.Delete}})
	links := h.VXLANLinks(instance).Apply([]delta.Op[topology.LinkKey, topology.Link]{{Verb: delta.Delete}})
	neighbours := h.FabricNeighbours().Apply([]delta.Op[topology.NeighbourKey, topology.Neighbour]{{Verb: delta.Delete}})
	for _, err := range append(append(routes, links...), neighbours...) {
		if err == nil {
			t.Error("an operation without a kernel succeeded")
		}
	}
	if _, err := h.FDB().Observe(); err == nil {
		t.Error("nothing was read, without an error")
	}
}
