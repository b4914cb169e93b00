// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

const specCheck = "CNI 1.1.0, section 2 CHECK"

func checkCases() []Case {
	return []Case{
		{
			ID: "CHECK-02", Level: MUST, Spec: specCheck,
			Claim: "CHECK succeeds immediately after ADD, of both families, and again",
			Run: func(c *C) {
				n, p := c.Dual(), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				before := c.Snapshot(p.Netns)
				for range 2 {
					c.Silent(n.Check(p.Eth0(), add))
				}
				c.Unchanged("the pod", before, c.Snapshot(p.Netns))
				c.Must(p.LinkSetDown(c.Link(p.Netns, "eth0")), "set eth0 down")
				c.Must(p.LinkDel(c.Link(p.Netns, "eth0")), "delete eth0")
				c.Fails(n.Check(p.Eth0(), add))
			},
		},
		{
			ID: "CHECK-03", Level: MUST, Spec: specCheck,
			Claim: "CHECK without prevResult is error 7",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				c.Added(n.Add(p.Eth0()))
				c.Fails(n.Do("CHECK", p.Eth0(), n.Conf()), 7)
			},
		},
		{
			ID: "CHECK-04", Level: SHOULD, Spec: specCheck,
			Claim: "CHECK of a container that was not added, or was deleted, is an error",
			Run: func(c *C) {
				n, p, other := c.Net(), c.Pod(), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				c.Fails(n.Check(other.Eth0(), add))
				c.Silent(n.Check(p.Eth0(), add))
				c.Silent(n.Del(p.Eth0(), prev(add)))
				c.Fails(n.Check(p.Eth0(), add))
			},
		},
		{
			ID: "CHECK-05", Level: MUST, Spec: "CNI 1.1.0, section 2 CHECK: must consult the prevResult",
			Claim: "CHECK is an error when prevResult has an address of this interface that it does not have",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				c.Silent(n.Check(p.Eth0(), add))
				c.Fails(n.Check(p.Eth0(), editResult(c, add, func(o Object) {
					ip := o["ips"].([]any)[0].(map[string]any)
					ip["address"] = "10.42.9.9/20"
				})))
			},
		},
		{
			ID: "CHECK-06", Level: MUST, Spec: "CNI 1.1.0, section 2 CHECK: allow for a later chained plugin",
			Claim: "CHECK tolerates a route that a later plugin removed from the pod and from the result",
			Run: func(c *C) {
				dst := netip.MustParsePrefix("203.0.113.0/24")
				n, p := c.NetOf(List{List{pool4}}, List{default4, Object{"dst": dst.String()}}), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				for _, r := range c.RouteTo(p.Netns, dst) {
					c.Must(p.RouteDel(&r), "delete the route")
				}
				c.Fails(n.Check(p.Eth0(), add))
				c.Silent(n.Check(p.Eth0(), editResult(c, add, func(o Object) {
					o["routes"] = []any{map[string]any{"dst": "0.0.0.0/0"}}
				})))
			},
		},
		{
			ID: "CHECK-07", Level: MUST, Spec: "CNI 1.1.0, section 2 CHECK: allow for a later chained plugin",
			Claim: "CHECK tolerates a MAC that a later plugin changed in the pod and in the result",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				const mac = "02:00:5e:00:53:77"
				hw, err := net.ParseMAC(mac)
				c.Must(err, "parse the MAC")
				c.Must(p.LinkSetHardwareAddr(c.Link(p.Netns, "eth0"), hw), "change the MAC")
				c.Fails(n.Check(p.Eth0(), add))
				c.Silent(n.Check(p.Eth0(), editResult(c, add, func(o Object) {
					for _, i := range o["interfaces"].([]any) {
						if i := i.(map[string]any); i["name"] == "eth0" {
							i["mac"] = mac
						}
					}
				})))
			},
		},
		tolerates("CHECK-08", "an additional route", func(c *C, _ *Network, p *Pod) {
			_, dst, _ := net.ParseCIDR("198.51.100.0/24")
			c.Must(p.RouteAdd(&netlink.Route{LinkIndex: c.Link(p.Netns, "eth0").Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK}), "add a route")
		}),
		tolerates("CHECK-09", "an additional address", func(c *C, _ *Network, p *Pod) {
			c.Must(p.AddrAdd(c.Link(p.Netns, "eth0"), parseAddr("198.51.100.77/32")), "add an address")
		}),
		tolerates("CHECK-10", "queueing disciplines on both ends", func(c *C, _ *Network, p *Pod) {
			c.shape(p.Netns, c.Link(p.Netns, "eth0"))
			c.shape(c.Host, c.HostEnd(p, "eth0"))
		}),
		tolerates("CHECK-11", "an additional interface in the pod", func(c *C, _ *Network, p *Pod) {
			c.Must(p.LinkSetUp(c.dummy(p.Netns, "net1")), "set net1 up")
		}),
		tolerates("CHECK-12", "a smaller MTU, promiscuous mode and another queue length, as tuning sets them", func(c *C, _ *Network, p *Pod) {
			l := c.Link(p.Netns, "eth0")
			c.Must(p.LinkSetMTU(l, 1400), "set the mtu")
			c.Must(p.SetPromiscOn(l), "set promiscuous mode")
			c.Must(p.LinkSetTxQLen(l, 500), "set the queue length")
		}),
		tolerates("CHECK-13", "an additional neighbour entry", func(c *C, _ *Network, p *Pod) {
			hw, _ := net.ParseMAC("02:00:00:00:00:99")
			c.Must(p.NeighAdd(&netlink.Neigh{
				LinkIndex: c.Link(p.Netns, "eth0").Attrs().Index, IP: net.ParseIP("198.51.100.9"),
				HardwareAddr: hw, State: netlink.NUD_PERMANENT,
			}), "add a neighbour")
		}),
	}
}

// tolerates changes what later plugins may change, and then proves that CHECK
// was looking at all by taking the interface away.
func tolerates(id, what string, change func(c *C, n *Network, p *Pod)) Case {
	return Case{
		ID: id, Level: MUST, Spec: "CNI 1.1.0, section 2 CHECK: allow for a later chained plugin",
		Claim: "CHECK tolerates " + what,
		Run: func(c *C) {
			n, p := c.Net(), c.Pod()
			add := c.Added(n.Add(p.Eth0()))
			change(c, n, p)
			c.Silent(n.Check(p.Eth0(), add))
			c.Must(p.LinkDel(c.Link(p.Netns, "eth0")), "delete eth0")
			c.Fails(n.Check(p.Eth0(), add))
		},
	}
}

// tamperCases break one thing that ADD made. CHECK must see it.
func tamperCases() []Case {
	return []Case{
		tampered("CHECK-20", "the interface is gone", func(c *C, _ *Network, p *Pod, _ netip.Addr) {
			c.Must(p.LinkDel(c.Link(p.Netns, "eth0")), "delete eth0")
		}),
		tampered("CHECK-21", "the interface was renamed", func(c *C, _ *Network, p *Pod, _ netip.Addr) {
			l := c.Link(p.Netns, "eth0")
			c.Must(p.LinkSetDown(l), "set eth0 down")
			c.Must(p.LinkSetName(l, "was-eth0"), "rename eth0")
			c.Must(p.LinkSetUp(l), "set it up")
		}),
		tampered("CHECK-22", "another interface took its place", func(c *C, _ *Network, p *Pod, addr netip.Addr) {
			c.Must(p.LinkDel(c.Link(p.Netns, "eth0")), "delete eth0")
			l := c.dummy(p.Netns, "eth0")
			c.Must(p.AddrAdd(l, parseAddr(addr.String()+"/32")), "add the address")
			c.Must(p.LinkSetUp(l), "set eth0 up")
		}),
		tampered("CHECK-23", "the address is gone", func(c *C, _ *Network, p *Pod, addr netip.Addr) {
			c.removeAddr(p.Netns, "eth0", addr)
		}),
		tampered("CHECK-24", "the address was replaced", func(c *C, _ *Network, p *Pod, addr netip.Addr) {
			c.removeAddr(p.Netns, "eth0", addr)
			c.Must(p.AddrAdd(c.Link(p.Netns, "eth0"), parseAddr("10.42.9.9/32")), "add another")
		}),
		tampered("CHECK-25", "the default route is gone", func(c *C, _ *Network, p *Pod, _ netip.Addr) {
			for _, r := range c.RouteTo(p.Netns, netip.MustParsePrefix("0.0.0.0/0")) {
				c.Must(p.RouteDel(&r), "delete the default route")
			}
		}),
		tampered("CHECK-26", "the interface is down", func(c *C, _ *Network, p *Pod, _ netip.Addr) {
			c.Must(p.LinkSetDown(c.Link(p.Netns, "eth0")), "set eth0 down")
		}),
		tampered("CHECK-27", "the host's end is down", func(c *C, _ *Network, p *Pod, _ netip.Addr) {
			c.Must(c.Host.LinkSetDown(c.HostEnd(p, "eth0")), "set the host's end down")
		}),
		tampered("CHECK-28", "the MAC was changed", func(c *C, _ *Network, p *Pod, _ netip.Addr) {
			hw, _ := net.ParseMAC("02:00:5e:00:53:01")
			c.Must(p.LinkSetHardwareAddr(c.Link(p.Netns, "eth0"), hw), "change the MAC")
		}),
		tampered("CHECK-29", "the host's route to the pod is gone", func(c *C, _ *Network, _ *Pod, addr netip.Addr) {
			found := c.RouteTo(c.Host, netip.PrefixFrom(addr, addr.BitLen()))
			for _, r := range found {
				c.Must(c.Host.RouteDel(&r), "delete the host's route")
			}
			if len(found) == 0 {
				c.Fatalf("set up: the host has no route to %s", addr)
			}
		}),
		weftOnly(tampered("CHECK-30", "the pod's neighbour entry of the gateway is gone", func(c *C, _ *Network, p *Pod, _ netip.Addr) {
			c.dropPermanent(p.Netns, c.Link(p.Netns, "eth0"))
		})),
		weftOnly(tampered("CHECK-31", "the host has another hardware address for the pod", func(c *C, _ *Network, p *Pod, addr netip.Addr) {
			c.mislead(c.Host, c.HostEnd(p, "eth0"), addr)
		})),
		weftOnly(tampered("CHECK-32", "the masquerade rules are gone", func(c *C, _ *Network, _ *Pod, _ netip.Addr) {
			c.inHost("nft", "flush", "ruleset")
		})),
		tampered("CHECK-34", "another namespace took the place of the container's", func(c *C, _ *Network, p *Pod, addr netip.Addr) {
			other := c.Pod()
			l := c.dummy(other.Netns, "eth0")
			c.Must(other.AddrAdd(l, parseAddr(addr.String()+"/32")), "add the address")
			p.Delete()
			c.Must(os.Symlink(other.Path, p.Path), "reuse the path")
		}),
		tampered("CHECK-33", "the reservation of the address is lost", func(_ *C, n *Network, _ *Pod, _ netip.Addr) {
			n.LoseState()
		}),
	}
}

func tampered(id, what string, tamper func(c *C, n *Network, p *Pod, addr netip.Addr)) Case {
	return Case{
		ID: id, Level: SHOULD, Spec: specCheck,
		Claim: "CHECK is an error when " + what,
		Run: func(c *C) {
			n, p := c.Net(), c.Pod()
			add := c.Added(n.Add(p.Eth0()))
			c.Silent(n.Check(p.Eth0(), add))
			tamper(c, n, p, c.Addr(add))
			if f := c.Fails(n.Check(p.Eth0(), add)); c.Subject.Has(FeatureWeft) && f.Code != 101 {
				c.Errorf("code is %d, want 101: %s", f.Code, f.Text())
			}
		},
	}
}

// weftOnly restricts a case to what only Weft makes.
func weftOnly(k Case) Case {
	k.Needs |= FeatureWeft
	return k
}

// editResult returns a call that looks like add, with another result.
func editResult(c *C, add *Call, edit func(Object)) *Call {
	var o Object
	c.Must(json.Unmarshal(add.Stdout, &o), "decode the result")
	edit(o)
	changed := *add
	changed.Stdout = c.encode(o)
	return &changed
}

func parseAddr(s string) *netlink.Addr {
	a, err := netlink.ParseAddr(s)
	if err != nil {
		panic(err)
	}
	return a
}
