// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"net/netip"
	"slices"
	"sync"
)

func addCases() []Case {
	return slices.Concat([]Case{
		{
			ID: "ADD-10", Level: MUST, Spec: specAdd,
			Claim: "ADD of an interface name that exists in the container is an error and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				c.dummy(p.Netns, "eth0")
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				c.Names(c.Fails(n.Add(p.Eth0())), "eth0")
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "ADD-11", Level: MUST, Spec: "Weft, errors", Needs: FeatureWeft,
			Claim: "That error has code 100",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				c.dummy(p.Netns, "eth0")
				c.Fails(n.Add(p.Eth0()), 100)
			},
		},
		{
			ID: "ADD-12", Level: SHOULD, Spec: "CNI 1.1.0, section 3 Lifecycle: a delete must still be executed even if the add fails",
			Claim: "DEL after an ADD that was refused for an existing interface leaves that interface alone",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				c.dummy(p.Netns, "eth0")
				before := c.Snapshot(p.Netns)
				c.Fails(n.Add(p.Eth0()))
				c.Silent(n.Del(p.Eth0()))
				c.Unchanged("the pod", before, c.Snapshot(p.Netns))
			},
		},
		{
			ID: "ADD-13", Level: MUST, Spec: specAdd,
			Claim: "A second ADD of the same attachment is an error, takes no second address and leaves the first working",
			Run: func(c *C) {
				n, p := c.Tiny(2), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				before := c.Snapshot(p.Netns)
				c.Fails(n.Add(p.Eth0()))
				c.Unchanged("the pod", before, c.Snapshot(p.Netns))
				c.Silent(n.Check(p.Eth0(), add))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "ADD-14", Level: MUST, Spec: "Weft, repeatAdd", Needs: FeatureWeft,
			Claim: "With repeatAdd \"return\" a second ADD answers with the identical result and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(2), c.Pod()
				add := c.Added(n.Add(p.Eth0(), set("repeatAdd", "return")))
				before := c.Snapshot(p.Netns)
				again := c.Added(n.Add(p.Eth0(), set("repeatAdd", "return")))
				if !bytes.Equal(add.Stdout, again.Stdout) {
					c.Errorf("the results differ:\n%s\n%s", add.Stdout, again.Stdout)
				}
				c.Unchanged("the pod", before, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "ADD-15", Level: MUST, Spec: specAdd,
			Claim: "One container is attached several times by different interfaces, each with its own address",
			Run:   severalAttachments,
		},
		{
			ID: "ADD-16", Level: MUST, Spec: "CNI 1.1.0, section 2 Overview",
			Claim: "Pods reach each other and the host, over IPv4 and IPv6, as soon as ADD has returned",
			Run:   connectivity,
		},
		{
			ID: "ADD-17", Level: MUST, Spec: "CNI 1.1.0, section 3 Lifecycle",
			Claim: "Concurrent ADDs and DELs of different containers succeed, without a duplicate address",
			Run:   concurrentPods,
		},
		{
			ID: "ADD-18", Level: MUST, Spec: "Weft, DESIGN: operations on one key are serialized", Needs: FeatureWeft,
			Claim: "Of concurrent ADDs of one attachment exactly one succeeds, and one address is taken",
			Run:   concurrentSame,
		},
		{
			ID: "ADD-19", Level: SHOULD, Spec: specError,
			Claim: "ADD without a free address is error 11 and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				first := c.Pod()
				add := c.Added(n.Add(first.Eth0()))
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				c.Fails(n.Add(p.Eth0()), 11)
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Silent(n.Del(first.Eth0(), prev(add)))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "ADD-20", Level: SHOULD, Spec: "Weft, IPAM: one atomic grant",
			Claim: "When one family is exhausted, ADD takes no address of the other",
			Run: func(c *C) {
				one := Object{"subnet": "fd00:42::/64", "rangeStart": "fd00:42::11", "rangeEnd": "fd00:42::11"}
				n := c.NetOf(List{List{few(2)}, List{one}}, List{default4, default6})
				first := c.Pod()
				add := c.Added(n.Add(first.Eth0()))
				c.Fails(n.Add(c.Pod().Eth0()))
				c.Silent(n.Del(first.Eth0(), prev(add)))
				// Both IPv4 addresses must be free for these two, in turn.
				for range 2 {
					p := c.Pod()
					add := n.addPatiently(p.Eth0())
					c.Silent(n.Del(p.Eth0(), prev(c.Added(add))))
				}
			},
		},
		{
			ID: "ADD-21", Level: MUST, Spec: specAdd,
			Claim: "ADD with CNI_IFNAME lo, which exists in every namespace, is an error and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				c.Fails(n.Add(p.On("lo")))
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "ADD-22", Level: SHOULD, Spec: specAdd,
			Claim: "An IPv6 address works in a namespace where IPv6 is disabled by default",
			Run: func(c *C) {
				n, p := c.Dual(), c.Pod()
				c.setSysctl(p.Netns, "net/ipv6/conf/all/disable_ipv6", "1")
				c.setSysctl(p.Netns, "net/ipv6/conf/default/disable_ipv6", "1")
				add := n.Add(p.Eth0())
				for _, ip := range c.Result(add).IPs {
					if !c.HasAddr(p.Netns, "eth0", ip.Address.Addr()) {
						c.Errorf("%s is not on eth0", ip.Address)
					}
				}
				c.Silent(n.Check(p.Eth0(), add))
			},
		},
	})
}

func severalAttachments(c *C) {
	n, p := c.Tiny(3), c.Pod()
	seen := map[netip.Addr]string{}
	adds := map[string]*Call{}
	for _, ifname := range []string{"eth0", "net1", "net2"} {
		// A second default route cannot be added; the other networks have none.
		var edits []func(Object)
		if ifname != "eth0" {
			edits = append(edits, withoutRoutes)
		}
		adds[ifname] = n.Add(p.On(ifname), edits...)
		addr := c.Addr(adds[ifname])
		if other, twice := seen[addr]; twice {
			c.Errorf("%s and %s have the same address %s", other, ifname, addr)
		}
		seen[addr] = ifname
		if !c.HasAddr(p.Netns, ifname, addr) {
			c.Errorf("%s does not have its address %s", ifname, addr)
		}
	}
	c.Silent(n.Del(p.On("net1"), withoutRoutes, prev(adds["net1"])))
	c.Eventually("net1 is gone", func() bool { return !p.HasLink("net1") })
	for _, ifname := range []string{"eth0", "net2"} {
		if !p.HasLink(ifname) {
			c.Errorf("DEL of net1 removed %s as well", ifname)
		}
	}
	n.MustHaveFree(1)
}

// withoutRoutes removes the routes from a configuration that has them. An
// agent's routes are not in it; it must cope with them by itself.
func withoutRoutes(o Object) {
	if section, ok := o["ipam"].(Object); ok {
		o["ipam"] = with(section, "routes", List{})
	}
}

// with returns a copy of an object with one key set.
func with(o Object, key string, value any) Object {
	clone := Object{}
	for k, v := range o {
		clone[k] = v
	}
	clone[key] = value
	return clone
}

func connectivity(c *C) {
	n, a, b := c.Dual(), c.Pod(), c.Pod()
	first := c.Result(n.Add(a.Eth0()))
	second := c.Result(n.Add(b.Eth0()))
	c.forward()
	for i := range second.IPs {
		c.Pings(a.Netns, b.Netns, second.IPs[i].Address.Addr())
		c.Pings(c.Host, a.Netns, first.IPs[i].Address.Addr())
	}
	c.Pings(a.Netns, c.Host, netip.MustParseAddr("192.0.2.10"))
	c.Pings(a.Netns, c.Host, netip.MustParseAddr("2001:db8::10"))
}

func concurrentPods(c *C) {
	const pods = 8
	n := c.Tiny(pods)
	all := make([]*Pod, pods)
	adds := make([]*Call, pods)
	for i := range all {
		all[i] = c.Pod()
	}
	inParallel(pods, func(i int) { adds[i] = n.Add(all[i].Eth0()) })
	seen := map[netip.Addr]bool{}
	for _, add := range adds {
		addr := c.Addr(add)
		if seen[addr] {
			c.Errorf("address %s was given twice", addr)
		}
		seen[addr] = true
	}
	dels := make([]*Call, pods)
	inParallel(pods, func(i int) { dels[i] = n.Del(all[i].Eth0(), prev(adds[i])) })
	for _, del := range dels {
		c.Silent(del)
	}
	n.MustHaveFree(pods)
}

func concurrentSame(c *C) {
	const times = 4
	n, p := c.Tiny(2), c.Pod()
	calls := make([]*Call, times)
	inParallel(times, func(i int) { calls[i] = n.Add(p.Eth0()) })
	won := 0
	for _, call := range calls {
		if call.Code == 0 {
			won++
			c.Silent(n.Check(p.Eth0(), call))
			continue
		}
		c.Fails(call)
	}
	if won != 1 {
		c.Errorf("%d of %d ADDs succeeded, want 1", won, times)
	}
	n.MustHaveFree(1)
}

func inParallel(count int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
