// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
	"weft.dev/weft/internal/reconcile"
	"weft.dev/weft/internal/reconcile/drivertest"
)

const instance = "/run/weft"

// ip runs iproute2's ip, or another of its programs, in the host's namespace:
// what an operator would do, in the words of somebody else's code.
func (w *world) ip(args ...string) string {
	w.Helper()
	out, err := w.tryIP(args...)
	if err != nil {
		w.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (w *world) tryIP(args ...string) (out string, err error) {
	w.Helper()
	program := "ip"
	if args[0] == "bridge" || args[0] == "nft" {
		program, args = args[0], args[1:]
	}
	if _, err := exec.LookPath(program); err != nil {
		w.Skipf("no %s command: apt-get install iproute2 nftables", program)
	}
	w.host.Do(func() {
		var b []byte
		b, err = exec.Command(program, args...).CombinedOutput()
		out = string(b)
	})
	return out, err
}

// open returns a Handle with an empty memory.
func (w *world) open() *kernel.Handle {
	w.Helper()
	var h *kernel.Handle
	w.host.Do(func() {
		var err error
		if h, err = kernel.Open(); err != nil {
			w.Fatal(err)
		}
	})
	w.Cleanup(h.Close)
	return h
}

var (
	mac1 = attach.MAC{0x02, 0, 0, 0, 0, 1}
	mac2 = attach.MAC{0x02, 0, 0, 0, 0, 2}
)

// device returns a wanted device of each kind of underlay.
func device(k topology.LinkKey) topology.Link {
	l := topology.Link{VNI: 7, Port: 8472, Local: nodeAddr4, MAC: mac1, MTU: 1450, Checksum: true}
	if k == topology.VXLANDevice6 {
		l.Local, l.MTU = nodeAddr6, 1430
	}
	return l
}

// apply carries out one operation that must succeed.
func apply[K delta.Key[K], V comparable](t testing.TB, d reconcile.Driver[K, V], verb delta.Verb, k K, v V) {
	t.Helper()
	if err := d.Apply([]delta.Op[K, V]{{Verb: verb, Key: k, Want: v}})[0]; err != nil {
		t.Fatalf("%s %v: %v", verb, k, err)
	}
}

func observe[K delta.Key[K], V comparable](t testing.TB, d reconcile.Driver[K, V]) map[K]V {
	t.Helper()
	all, err := d.Observe()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// devices makes both VXLAN devices, or those named.
func (w *world) devices(keys ...topology.LinkKey) {
	w.Helper()
	nstest.Need(w, "vxlan", "ipv6")
	if len(keys) == 0 {
		keys = []topology.LinkKey{topology.VXLANDevice4, topology.VXLANDevice6}
	}
	for _, k := range keys {
		apply(w, w.h.VXLANLinks(instance), delta.Add, k, device(k))
	}
}

// showIs returns a check that what ip shows is what it shows now.
func (w *world) unchanged(args ...string) func(t *testing.T) {
	w.Helper()
	before := w.ip(args...)
	return func(t *testing.T) {
		t.Helper()
		if after := w.ip(args...); after != before {
			t.Errorf("%s\nbefore: %safter:  %s", strings.Join(args, " "), before, after)
		}
	}
}

func TestVXLANLinksKeepTheContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.LinkKey, topology.Link] {
		nstest.Need(t, "vxlan", "ipv6")
		w := newWorld(t)
		return drivertest.Subject[topology.LinkKey, topology.Link]{
			Driver: w.h.VXLANLinks(instance),
			Reopen: func(*testing.T) reconcile.Driver[topology.LinkKey, topology.Link] {
				return w.open().VXLANLinks(instance)
			},
			Keys: []topology.LinkKey{topology.VXLANDevice4, topology.VXLANDevice6},
			Value: func(k topology.LinkKey, i int) topology.Link {
				l := device(k)
				switch i {
				case 1:
					l.MTU -= 50
				case 2:
					l.MAC = mac2
				case 3:
					l.Local = netip.MustParseAddr("192.0.2.11")
					if k == topology.VXLANDevice6 {
						l.Local = netip.MustParseAddr("2001:db8::11")
					}
				case 4:
					l.Checksum = false
				case 5:
					l.VNI++
				case 6:
					l.Port++
				}
				return l
			},
			Values: 7,
			Foreign: func(t *testing.T, k topology.LinkKey) func(t *testing.T) {
				w.ip("link", "add", string(k), "type", "veth", "peer", "name", "other")
				return w.unchanged("-d", "link", "show", string(k))
			},
			Broken: &delta.Op[topology.LinkKey, topology.Link]{
				Verb: delta.Add, Key: "weft-vxlan7", Want: topology.Link{VNI: 1 << 24, Port: 1, Local: nodeAddr4, MAC: mac1, MTU: 1450},
			},
		}
	})
}

func TestFabricAddressesKeepTheContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.AddressKey, topology.Address] {
		w := newWorld(t)
		w.devices(topology.VXLANDevice4)
		key := func(dev, a string) topology.AddressKey {
			return topology.AddressKey{Dev: dev, Addr: netip.MustParseAddr(a)}
		}
		return drivertest.Subject[topology.AddressKey, topology.Address]{
			Driver: w.h.FabricAddresses(),
			Reopen: func(*testing.T) reconcile.Driver[topology.AddressKey, topology.Address] {
				return w.open().FabricAddresses()
			},
			Keys: []topology.AddressKey{
				key(topology.VXLANDevice4, "10.42.3.1"), key(topology.VXLANDevice4, "10.42.4.1"),
				key(topology.VXLANDevice4, "fd00:42:3::1"), key(topology.VXLANDevice4, "fd00:42:4::1"),
			},
			Value:  func(topology.AddressKey, int) topology.Address { return topology.Address{} },
			Broken: &delta.Op[topology.AddressKey, topology.Address]{Verb: delta.Add, Key: key(topology.VXLANDevice6, "10.42.3.1")},
		}
	})
}

func TestFabricNeighboursKeepTheContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.NeighbourKey, topology.Neighbour] {
		w := newWorld(t)
		w.devices(topology.VXLANDevice4)
		key := func(dev, a string) topology.NeighbourKey {
			return topology.NeighbourKey{Dev: dev, Addr: netip.MustParseAddr(a)}
		}
		return drivertest.Subject[topology.NeighbourKey, topology.Neighbour]{
			Driver: w.h.FabricNeighbours(),
			Reopen: func(*testing.T) reconcile.Driver[topology.NeighbourKey, topology.Neighbour] {
				return w.open().FabricNeighbours()
			},
			Keys: []topology.NeighbourKey{
				key(topology.VXLANDevice4, "10.42.5.1"), key(topology.VXLANDevice4, "10.42.6.1"),
				key(topology.VXLANDevice4, "fd00:42:5::1"), key(topology.VXLANDevice4, "fd00:42:6::1"),
			},
			Value: func(_ topology.NeighbourKey, i int) topology.Neighbour {
				return topology.Neighbour{MAC: attach.MAC{2, 0, 0, 0, 1, byte(i)}}
			},
			Values: 3,
			Broken: &delta.Op[topology.NeighbourKey, topology.Neighbour]{
				Verb: delta.Add, Key: key(topology.VXLANDevice6, "10.42.5.1"), Want: topology.Neighbour{MAC: mac2},
			},
		}
	})
}

func TestFDBKeepsTheContract(t *testing.T) {
	for _, c := range []struct {
		dev   topology.LinkKey
		other string
		dst   string
	}{
		{topology.VXLANDevice4, topology.VXLANDevice6, "198.18.2.%d"},
		{topology.VXLANDevice6, topology.VXLANDevice4, "2001:db8:2::%d"},
	} {
		t.Run(string(c.dev), func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.FDBKey, topology.FDB] {
				w := newWorld(t)
				w.devices(c.dev)
				return drivertest.Subject[topology.FDBKey, topology.FDB]{
					Driver: w.h.FDB(),
					Reopen: func(*testing.T) reconcile.Driver[topology.FDBKey, topology.FDB] { return w.open().FDB() },
					Keys:   []topology.FDBKey{{Dev: string(c.dev), MAC: mac1}, {Dev: string(c.dev), MAC: mac2}},
					Value: func(_ topology.FDBKey, i int) topology.FDB {
						return topology.FDB{Dst: netip.MustParseAddr(fmt.Sprintf(c.dst, 10+i))}
					},
					Values: 3,
					Broken: &delta.Op[topology.FDBKey, topology.FDB]{
						Verb: delta.Add, Key: topology.FDBKey{Dev: c.other, MAC: mac1}, Want: topology.FDB{Dst: nodeAddr4},
					},
				}
			})
		})
	}
}

// routesSubject is a world with an uplink and a VXLAN device. The routes of the
// main table lead anywhere, over either family, and nowhere.
func routesSubject(t *testing.T) (*world, drivertest.Subject[topology.RouteKey, topology.Route]) {
	w := newWorld(t)
	w.devices(topology.VXLANDevice4)
	w.outside()
	dst := func(s string) topology.RouteKey { return topology.RouteKey{Dst: netip.MustParsePrefix(s)} }
	values := func(k topology.RouteKey) []topology.Route {
		six := topology.Route{Gateway: netip.MustParseAddr("2001:db8:1::2"), Dev: "uplink"}
		// The gateway of a lease is in its subnet, as is nobody else's.
		near := topology.Route{Gateway: k.Dst.Addr().Next(), Dev: topology.VXLANDevice4}
		other := near
		other.Gateway = near.Gateway.Next()
		return []topology.Route{near, {}, six, other}
	}
	return w, drivertest.Subject[topology.RouteKey, topology.Route]{
		Driver: w.h.FabricRoutes(),
		Reopen: func(*testing.T) reconcile.Driver[topology.RouteKey, topology.Route] { return w.open().FabricRoutes() },
		Keys:   []topology.RouteKey{dst("10.42.5.0/24"), dst("10.42.6.0/24"), dst("10.42.6.0/32"), dst("fd00:42:5::/64"), dst("fd00:42:6::/64")},
		Value:  func(k topology.RouteKey, i int) topology.Route { return values(k)[i] },
		Values: 4,
		Broken: &delta.Op[topology.RouteKey, topology.Route]{
			Verb: delta.Add, Key: dst("10.42.7.0/24"), Want: topology.Route{Gateway: nodeAddr4, Dev: "nowhere"},
		},
	}
}

func TestFabricRoutesKeepTheContract(t *testing.T) {
	for name, foreign := range map[string][]string{
		"static": {"route", "add", "10.42.5.0/24", "via", "198.51.100.9", "dev", "uplink", "onlink"},
		"metric": {"route", "add", "10.42.5.0/24", "dev", "uplink", "metric", "100", "proto", "kernel"},
		// Of our own protocol, but a pod's.
		"pod": {"route", "add", "10.42.5.0/24", "dev", "uplink", "proto", "119", "scope", "link"},
		// Hidden from a look-up by a more specific one.
		"hidden":      {"route", "add", "unreachable", "10.42.5.0/24"},
		"ipv6":        {"-6", "route", "add", "fd00:42:5::/64", "via", "2001:db8:1::9", "dev", "uplink", "onlink"},
		"ipv6 metric": {"-6", "route", "add", "fd00:42:5::/64", "dev", "uplink", "metric", "256"},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.RouteKey, topology.Route] {
				w, s := routesSubject(t)
				family := "-4"
				if strings.HasPrefix(name, "ipv6") {
					family = "-6"
					s.Keys[0], s.Keys[3] = s.Keys[3], s.Keys[0]
				}
				s.Foreign = func(*testing.T, topology.RouteKey) func(t *testing.T) {
					w.ip(foreign...)
					return w.unchanged(family, "route", "show", "table", "all")
				}
				return s
			})
		})
	}
}

func TestLocalRoutesKeepTheContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.RouteKey, topology.Route] {
		w := newWorld(t)
		local := func(s string) topology.RouteKey {
			return topology.RouteKey{Dst: netip.MustParsePrefix(s), Local: true}
		}
		return drivertest.Subject[topology.RouteKey, topology.Route]{
			Driver: w.h.FabricRoutes(),
			Reopen: func(*testing.T) reconcile.Driver[topology.RouteKey, topology.Route] { return w.open().FabricRoutes() },
			// The last two are addresses of the host's own, too.
			Keys: []topology.RouteKey{
				local("10.42.3.1/32"), local("fd00:42:3::1/128"), local(nodeAddr4.String() + "/32"), local(nodeAddr6.String() + "/128"),
			},
			Value: func(topology.RouteKey, int) topology.Route { return topology.Route{} },
			Foreign: func(*testing.T, topology.RouteKey) func(t *testing.T) {
				w.ip("route", "add", "broadcast", "10.42.3.1", "dev", "lo", "table", "local")
				return w.unchanged("route", "show", "table", "local")
			},
		}
	})
}

func TestNATKeepsTheContract(t *testing.T) {
	nstest.Need(t, "inet nat", "ipv4 nat", "ipv6 nat")
	drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.NATKey, topology.NAT] {
		w := newWorld(t)
		keys := []topology.NATKey{"weft", "weft2"}
		return drivertest.Subject[topology.NATKey, topology.NAT]{
			Driver: w.h.NAT(keys...),
			Reopen: func(*testing.T) reconcile.Driver[topology.NATKey, topology.NAT] { return w.open().NAT(keys...) },
			Keys:   keys,
			Value: func(_ topology.NATKey, i int) topology.NAT {
				n := testNode()
				switch i {
				case 1:
					n.Sources = n.Sources[:1]
				case 2:
					n.Sources = n.Sources[1:]
				case 3:
					n.Pools = append(n.Pools, prefixes("0.0.0.0/1", "ffff::/16")...)
				}
				return kernel.NATOf(n)
			},
			Values: 4,
			Broken: &delta.Op[topology.NATKey, topology.NAT]{Verb: delta.Add, Key: "weft.thin", Want: kernel.NATOf(testNode())},
		}
	})
}

func TestSysctlsKeepTheContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Subject[topology.SysctlKey, topology.Sysctl] {
		w := newWorld(t)
		keys := []topology.SysctlKey{kernel.ForwardingIPv4, kernel.ForwardingIPv6, "net/ipv4/conf/lo/rp_filter"}
		return drivertest.Subject[topology.SysctlKey, topology.Sysctl]{
			Driver: w.h.Sysctls(),
			Reopen: func(*testing.T) reconcile.Driver[topology.SysctlKey, topology.Sysctl] {
				return w.open().Sysctls(keys...)
			},
			Keys:   keys,
			Value:  func(_ topology.SysctlKey, i int) topology.Sysctl { return []topology.Sysctl{"1", "0"}[i] },
			Values: 2,
			Broken: &delta.Op[topology.SysctlKey, topology.Sysctl]{Verb: delta.Add, Key: "net/ipv4/no_such_key", Want: "1"},
		}
	})
}
