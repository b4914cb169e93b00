// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
)

func resultCases() []Case {
	return slices.Concat([]Case{
		{
			ID: "RESULT-01", Level: MUST, Spec: specResult,
			Claim: "The result lists every interface of the attachment, the host's end too, as the kernel has them",
			Run:   resultInterfaces,
		},
		{
			ID: "RESULT-02", Level: SHOULD, Spec: specResult,
			Claim: "sandbox is the value of CNI_NETNS verbatim, however it is spelled",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				link := c.Path("other-name")
				c.Must(os.Symlink(p.Path, link), "make a link")
				spellings := map[string]string{
					"eth0": filepath.Dir(p.Path) + "/./" + filepath.Base(p.Path),
					"eth1": link,
				}
				for ifname, path := range spellings {
					a := p.On(ifname)
					a.Netns = path
					edit := func(Object) {}
					if ifname == "eth1" {
						edit = withoutRoutes
					}
					if got := c.InSandbox(c.Result(n.Add(a, edit))).Sandbox; got != path {
						c.Errorf("sandbox is %q, want %q", got, path)
					}
					c.Silent(n.Del(a, edit))
					c.Eventually("the interface is gone", func() bool { return !p.HasLink(ifname) })
				}
			},
		},
		{
			ID: "RESULT-03", Level: MUST, Spec: specResult,
			Claim: "ips names the interface by its index in interfaces, and the address is on that interface",
			Run: func(c *C) {
				n, p := c.Dual(), c.Pod()
				r := c.Result(n.Add(p.Eth0()))
				if len(r.IPs) != 2 {
					c.Errorf("want an address of each family: %s", asJSON(r.IPs))
				}
				for _, ip := range r.IPs {
					if ip.Interface == nil || *ip.Interface < 0 || *ip.Interface >= len(r.Interfaces) {
						c.Fatalf("address %s: interface must be an index into interfaces: %s", ip.Address, asJSON(r))
					}
					if i := r.Interfaces[*ip.Interface]; i.Name != "eth0" || i.Sandbox != p.Path {
						c.Errorf("address %s: is on %s, want eth0 in the sandbox", ip.Address, asJSON(i))
					}
					if !c.HasAddr(p.Netns, "eth0", ip.Address.Addr()) {
						c.Errorf("address %s is not on eth0", ip.Address)
					}
				}
			},
		},
		{
			ID: "RESULT-04", Level: SHOULD, Spec: specResult,
			Claim: "ips carries the gateway, which is a next hop that the pod can use",
			Run: func(c *C) {
				n, p := c.Dual(), c.Pod()
				for _, ip := range c.Result(n.Add(p.Eth0())).IPs {
					if !ip.Gateway.IsValid() || ip.Gateway.Is4() != ip.Address.Addr().Is4() {
						c.Errorf("address %s: gateway is %s", ip.Address, ip.Gateway)
					}
				}
			},
		},
		{
			ID: "RESULT-05", Level: MUST, Spec: specResult,
			Claim: "IPv6 alone: one address, a default route, and the address is usable at once",
			Run: func(c *C) {
				n := c.NetOf(List{List{pool6}}, List{default6})
				a, b := c.Pod(), c.Pod()
				r := c.Result(n.Add(a.Eth0()))
				if len(r.IPs) != 1 || !r.IPs[0].Address.Addr().Is6() {
					c.Fatalf("want one IPv6 address: %s", asJSON(r.IPs))
				}
				c.Added(n.Add(b.Eth0()))
				if len(c.RouteTo(a.Netns, netip.MustParsePrefix("::/0"))) == 0 {
					c.Errorf("the pod has no IPv6 default route")
				}
				c.forward()
				c.Pings(b.Netns, a.Netns, r.IPs[0].Address.Addr())
			},
		},
		{
			ID: "RESULT-06", Level: SHOULD, Spec: "CNI 1.1.0, section 1 dns",
			Claim: "dns of the configuration is dns of the result",
			Run: func(c *C) {
				dns := Object{
					"nameservers": List{"10.1.0.1", "fd00::53"}, "domain": "example.org",
					"search": List{"a.example", "b.example"}, "options": List{"ndots:5"},
				}
				r := c.Result(c.Net().Add(c.Pod().Eth0(), set("dns", dns)))
				if got := asJSON(r.DNS); got != asJSON(DNS{[]string{"10.1.0.1", "fd00::53"}, "example.org", []string{"a.example", "b.example"}, []string{"ndots:5"}}) {
					c.Errorf("dns is %s, want %s", got, asJSON(dns))
				}
			},
		},
		{
			ID: "RESULT-07", Level: SHOULD, Spec: "CNI 1.1.0, section 1: keys respect their semantics",
			Claim: "mtu of the configuration is the MTU of the pod's interface and of the host's end",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				c.Added(n.Add(p.Eth0(), set("mtu", 1402)))
				for _, l := range []netlink.Link{c.Link(p.Netns, "eth0"), c.HostEnd(p, "eth0")} {
					if got := l.Attrs().MTU; got != 1402 {
						c.Errorf("%s has mtu %d, want 1402", l.Attrs().Name, got)
					}
				}
			},
		},
		{
			ID: "RESULT-08", Level: SHOULD, Spec: specResult,
			Claim: "1.1.0 reports the mtu of the interfaces",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				got := c.InSandbox(c.Result(n.Add(p.Eth0()))).MTU
				if want := c.Link(p.Netns, "eth0").Attrs().MTU; got != want {
					c.Errorf("mtu is %d, the kernel has %d", got, want)
				}
			},
		},
		{
			ID: "RESULT-09", Level: SHOULD, Spec: specResult,
			Claim: "The pod's interface and the host's end are up, and the pod has a default route",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				c.Added(n.Add(p.Eth0()))
				for _, l := range []netlink.Link{c.Link(p.Netns, "eth0"), c.HostEnd(p, "eth0")} {
					if l.Attrs().OperState != netlink.OperUp {
						c.Errorf("%s is %s, want up", l.Attrs().Name, l.Attrs().OperState)
					}
				}
				if len(c.RouteTo(p.Netns, netip.MustParsePrefix("0.0.0.0/0"))) != 1 {
					c.Errorf("want one default route: %v", c.Snapshot(p.Netns))
				}
			},
		},
		chainedHead(),
	}, chainedVersions())
}

// chainedVersions use the plugin behind another one in older versions.
func chainedVersions() (cases []Case) {
	for _, v := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0"} {
		cases = append(cases, Case{
			ID: "RESULT-11@" + v, Level: MUST, Spec: specAdd,
			Claim: "A prevResult of an older version is passed on in that version",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				ip := Object{"address": "198.51.100.7/24", "interface": 0}
				if v < "1" {
					ip["version"] = "4"
				}
				add := n.Do("ADD", p.Eth0(), n.ConfOf(v, set("prevResult", Object{
					"cniVersion": v, "interfaces": List{Object{"name": "other0", "sandbox": p.Path}}, "ips": List{ip},
					"routes": List{Object{"dst": "203.0.113.0/24", "gw": "198.51.100.1"}},
				})))
				c.Shaped(add, v)
				for _, want := range []string{`"name":"other0"`, `"name":"eth0"`, `"address":"198.51.100.7/24"`, `"dst":"203.0.113.0/24"`} {
					if !containsCompact(add.Stdout, want) {
						c.Errorf("%s is missing from the result: %s", want, oneLine(add.Stdout))
					}
				}
			},
		})
	}
	return cases
}

func resultInterfaces(c *C) {
	n, p := c.Net(), c.Pod()
	r := c.Result(n.Add(p.Eth0()))
	inside, onHost := c.InSandbox(r), Interface{}
	for _, i := range r.Interfaces {
		if i.Sandbox == "" {
			onHost = i
		}
	}
	if len(r.Interfaces) != 2 {
		c.Errorf("want two interfaces: %s", asJSON(r.Interfaces))
	}
	l := c.Link(p.Netns, "eth0")
	if inside.Name != "eth0" || inside.Sandbox != p.Path || inside.Mac != l.Attrs().HardwareAddr.String() {
		c.Errorf("the pod's interface is %s, the kernel has %s %s", asJSON(inside), l.Attrs().Name, l.Attrs().HardwareAddr)
	}
	h := c.HostEnd(p, "eth0")
	if onHost.Name != h.Attrs().Name || onHost.Mac != h.Attrs().HardwareAddr.String() {
		c.Errorf("the host's interface is %s, the kernel has %s %s", asJSON(onHost), h.Attrs().Name, h.Attrs().HardwareAddr)
	}
}

// chainedHead uses the plugin behind another one.
func chainedHead() Case {
	return Case{
		ID: "RESULT-10", Level: MUST, Spec: specAdd,
		Claim: "A plugin that is given a prevResult passes it on, complete, with its own changes",
		Run: func(c *C) {
			n, p := c.Net(), c.Pod()
			c.dummy(p.Netns, "other0")
			before := Object{
				"cniVersion": Newest,
				"interfaces": List{Object{"name": "other0", "mac": "02:00:00:00:00:01", "mtu": 1499, "sandbox": p.Path, "pciID": "0000:04:00.5", "socketPath": "/run/vhost0"}},
				"ips":        List{Object{"address": "198.51.100.7/24", "interface": 0}, Object{"address": "198.51.100.8/24"}},
				"routes":     List{Object{"dst": "203.0.113.0/24", "gw": "198.51.100.1", "mtu": 1444, "table": 0, "scope": 0}},
				"dns":        Object{"nameservers": List{"198.51.100.53"}, "domain": "prev.example"},
			}
			add := n.Add(p.Eth0(), set("prevResult", before))
			r := c.Result(add)
			c.Shaped(add, Newest)
			c.Link(p.Netns, "eth0")
			for _, want := range []string{
				`"name":"other0"`, `"pciID":"0000:04:00.5"`, `"socketPath":"/run/vhost0"`, `"mtu":1499`,
				`"address":"198.51.100.8/24"`, `"dst":"203.0.113.0/24"`, `"mtu":1444`, `"table":0`, `"scope":0`,
				`"198.51.100.53"`, `"domain":"prev.example"`,
			} {
				if !containsCompact(add.Stdout, want) {
					c.Errorf("%s of prevResult is missing from the result", want)
				}
			}
			other := slices.IndexFunc(r.Interfaces, func(i Interface) bool { return i.Name == "other0" })
			own := slices.IndexFunc(r.Interfaces, func(i Interface) bool { return i.Name == "eth0" && i.Sandbox == p.Path })
			for _, ip := range r.IPs {
				switch ip.Address.String() {
				case "198.51.100.7/24":
					expectIndex(c, ip, other)
				case "198.51.100.8/24":
					if ip.Interface != nil {
						c.Errorf("address %s has got an interface", ip.Address)
					}
				default:
					expectIndex(c, ip, own)
				}
			}
			c.Silent(n.Check(p.Eth0(), add))
			c.Silent(n.Del(p.Eth0(), prev(add)))
			c.Eventually("eth0 is gone", func() bool { return !p.HasLink("eth0") })
			if !p.HasLink("other0") {
				c.Errorf("DEL removed the other plugin's interface")
			}
		},
	}
}

func expectIndex(c *C, ip IP, want int) {
	if ip.Interface == nil || *ip.Interface != want || want < 0 {
		got := "none"
		if ip.Interface != nil {
			got = fmt.Sprint(*ip.Interface)
		}
		c.Errorf("address %s: interface is %s, want %d", ip.Address, got, want)
	}
}

// routeCases are about the route fields of 1.1.0: what the configuration asks
// for must be in the kernel and in the result.
func routeCases() []Case {
	const dst = "203.0.113.0/24"
	fields := []struct {
		name  string
		value int
		get   func(netlink.Route) int
	}{
		{"mtu", 1380, func(r netlink.Route) int { return r.MTU }},
		{"advmss", 1340, func(r netlink.Route) int { return r.AdvMSS }},
		{"priority", 117, func(r netlink.Route) int { return r.Priority }},
		{"table", 1234, func(r netlink.Route) int { return r.Table }},
		{"scope", 253, func(r netlink.Route) int { return int(r.Scope) }},
	}
	var cases []Case
	for _, f := range fields {
		network := func(c *C) *Network {
			return c.NetOf(List{List{pool4}}, List{default4, Object{"dst": dst, f.name: f.value}})
		}
		cases = append(cases,
			Case{
				ID: "ROUTE-01@" + f.name, Level: MUST, Spec: specResult,
				Claim: f.name + " of a route is applied in the kernel",
				Run: func(c *C) {
					p := c.Pod()
					c.Added(network(c).Add(p.Eth0()))
					found := c.RouteTo(p.Netns, netip.MustParsePrefix(dst))
					if len(found) != 1 || f.get(found[0]) != f.value {
						c.Errorf("want a route with %s %d: %v", f.name, f.value, found)
					}
				},
			},
			Case{
				ID: "ROUTE-02@" + f.name, Level: SHOULD, Spec: specResult,
				Claim: f.name + " of a route is reported in 1.1.0 and left out before",
				Run: func(c *C) {
					n := network(c)
					add := c.Added(n.Add(c.Pod().Eth0()))
					if want := fmt.Sprintf(`"%s":%d`, f.name, f.value); !containsCompact(add.Stdout, want) {
						c.Errorf("%s is not reported", want)
					}
					c.Shaped(n.Do("ADD", c.Pod().Eth0(), n.ConfOf("1.0.0")), "1.0.0")
				},
			})
	}
	return append(cases, Case{
		ID: "ROUTE-03", Level: MUST, Spec: specResult,
		Claim: "Every route of the result is in the pod, and CHECK agrees",
		Run: func(c *C) {
			n, p := c.NetOf(List{List{pool4}, List{pool6}}, List{default4, default6, Object{"dst": dst}, Object{"dst": "fd00:99::/48"}}), c.Pod()
			add := n.Add(p.Eth0())
			r := c.Result(add)
			if len(r.Routes) < 4 {
				c.Errorf("want the 4 routes of the configuration: %s", asJSON(r.Routes))
			}
			for _, route := range r.Routes {
				if len(c.RouteTo(p.Netns, route.Dst)) == 0 {
					c.Errorf("route %s is in the result and not in the pod", route.Dst)
				}
			}
			c.Silent(n.Check(p.Eth0(), add))
		},
	})
}
