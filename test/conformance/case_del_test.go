// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

func delCases() []Case {
	return slices.Concat([]Case{
		{
			ID: "DEL-02", Level: MUST, Spec: specDel,
			Claim: "DEL may be called several times for one attachment and succeeds each time",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				for range 3 {
					c.Silent(n.Del(p.Eth0(), prev(add)))
				}
				n.MustHaveFree(1)
			},
		},
		{
			ID: "DEL-03", Level: MUST, Spec: specDel,
			Claim: "DEL of a container that was never added succeeds, with and without its namespace",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				gone := p.Eth0()
				gone.Netns = ""
				before := c.Snapshot(p.Netns)
				c.Silent(n.Del(p.Eth0()))
				c.Silent(n.Del(gone))
				c.Unchanged("the pod", before, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		},
		delWithout("DEL-04", "DEL with CNI_NETNS empty succeeds and frees the address", func(e Env) Env { return e.With("CNI_NETNS", "") }),
		delWithout("DEL-05", "DEL with CNI_NETNS unset succeeds and frees the address", func(e Env) Env { return e.Without("CNI_NETNS") }),
		{
			ID: "DEL-06", Level: SHOULD, Spec: specDel,
			Claim: "DEL without prevResult removes the interface and frees the address",
			Run: func(c *C) {
				for _, edit := range []func(Object){drop("prevResult"), set("prevResult", nil), set("prevResult", Object{})} {
					n, p := c.network, c.Pod()
					if n == nil {
						n = c.Tiny(1)
					}
					c.Added(n.addPatiently(p.Eth0()))
					c.Silent(n.Del(p.Eth0(), edit))
					c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
				}
				c.network.MustHaveFree(1)
			},
		},
		{
			ID: "DEL-07", Level: MUST, Spec: specDel,
			Claim: "DEL with another pod's namespace frees the address and leaves the other pod alone",
			Run: func(c *C) {
				n, a, b := c.Tiny(3), c.Pod(), c.Pod()
				first, second := c.Added(n.Add(a.Eth0())), c.Added(n.Add(b.Eth0()))
				wrong := a.Eth0()
				wrong.Netns = b.Path
				c.Silent(n.Del(wrong, prev(first)))
				c.stillAttached(n, b, second, Newest)
				n.MustHaveFree(2)
			},
		},
		{
			ID: "DEL-08", Level: SHOULD, Spec: specDel,
			Claim: "DEL succeeds when the interface was removed by somebody else, and frees the address",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				c.Must(p.LinkDel(c.Link(p.Netns, "eth0")), "delete eth0")
				c.Silent(n.Del(p.Eth0(), prev(add)))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "DEL-09", Level: SHOULD, Spec: "Weft, IPAM: reuse in order of release, with a cool-down",
			Claim: "An address that was just released is not given out while others are free",
			Run: func(c *C) {
				n := c.Net()
				last := ""
				for range 4 {
					p := c.Pod()
					add := c.Added(n.Add(p.Eth0()))
					addr := c.Addr(add).String()
					if addr == last {
						c.Errorf("%s is reused at once", addr)
					}
					last = addr
					c.Silent(n.Del(p.Eth0(), prev(add)))
				}
			},
		},
		{
			ID: "DEL-10", Level: MUST, Spec: "Weft, IPAM: the cool-down gives way under pressure",
			Claim: "The only address is given out again as soon as it is released",
			Run: func(c *C) {
				n := c.Tiny(1)
				for range 3 {
					p := c.Pod()
					add := c.Added(n.addPatiently(p.Eth0()))
					c.Silent(n.Del(p.Eth0(), prev(add)))
				}
			},
		},
		{
			ID: "DEL-11", Level: SHOULD, Spec: specDel,
			Claim: "DEL succeeds when the plugin has lost its state, and removes the interface",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				n.LoseState()
				c.Silent(n.Del(p.Eth0(), prev(add)))
				c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
			},
		},
		{
			ID: "DEL-12", Level: MUST, Spec: specDel,
			Claim: "ADD, DEL, ADD, DEL of the same attachment works",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				for range 2 {
					add := c.Added(n.addPatiently(p.Eth0()))
					c.Silent(n.Check(p.Eth0(), add))
					c.Silent(n.Del(p.Eth0(), prev(add)))
				}
				c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
			},
		},
		{
			ID: "DEL-15", Level: MUST, Spec: "Weft, DESIGN: operations on one key are serialized", Needs: FeatureWeft,
			Claim: "Concurrent DELs of one attachment all succeed",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				dels := make([]*Call, 4)
				inParallel(len(dels), func(i int) { dels[i] = n.Del(p.Eth0(), prev(add)) })
				for _, del := range dels {
					c.Silent(del)
				}
				n.MustHaveFree(1)
			},
		},
		{
			ID: "DEL-14", Level: MUST, Spec: specDel,
			Claim: "DEL of a container whose namespace path now belongs to another container leaves that one alone",
			Run: func(c *C) {
				n, old, recycled := c.Tiny(3), c.Pod(), c.Pod()
				first := c.Added(n.Add(old.Eth0()))
				c.vanish(old)
				// The same path, another namespace: process ids and names are reused.
				c.Must(os.Symlink(recycled.Path, old.Path), "reuse the path")
				a := recycled.Eth0()
				a.Netns = old.Path
				add := c.Added(n.Add(a))
				c.Silent(n.Del(old.Eth0(), prev(first)))
				if !recycled.HasLink("eth0") {
					c.Fatalf("the other container lost its interface")
				}
				c.Silent(n.Check(a, add))
				n.MustHaveFree(2)
			},
		},
	}, oldConfigCases())
}

func delWithout(id, claim string, spoil func(Env) Env) Case {
	return Case{
		ID: id, Level: MUST, Spec: specDel, Claim: claim,
		Run: func(c *C) {
			n, p := c.Tiny(1), c.Pod()
			add := c.Added(n.Add(p.Eth0()))
			p.Delete()
			c.Silent(c.Exec(c.Subject.Binary, spoil(c.env("DEL", p.Eth0())), c.encode(n.Conf(prev(add)))))
			n.MustHaveFree(1)
		},
	}
}

// oldConfigCases pass DEL a configuration that is not the one of ADD: runtimes
// replay what they cached, across upgrades of the plugin, and administrators
// edit files.
func oldConfigCases() (cases []Case) {
	section := func(edit func(Object)) func(Object) {
		return func(o Object) {
			if ipam, ok := o["ipam"].(Object); ok {
				ipam = with(ipam, "edited", true)
				edit(ipam)
				o["ipam"] = ipam
			}
		}
	}
	shapes := []struct {
		claim string
		edit  func(Object)
	}{
		{"cniVersion 0.2.0", set("cniVersion", "0.2.0")},
		{"cniVersion 0.3.1", set("cniVersion", "0.3.1")},
		{"no cniVersion", drop("cniVersion")},
		{"other ranges", section(set("ranges", List{List{Object{"subnet": "10.99.0.0/24"}}}))},
		{"no ranges", section(drop("ranges"))},
		{"host-local's old single subnet", section(func(o Object) { delete(o, "ranges"); o["subnet"] = "10.42.0.0/20" })},
		{"routes that are invalid", section(set("routes", List{Object{"dst": "nonsense"}}))},
		{"keys that nobody knows any more", set("legacy", Object{"a": List{1, 2}})},
		{"mtu of the wrong type", set("mtu", "1500")},
		{"a capability that is not supported", capability("infinibandGUID", "c2:11:22:33:44:55:66:77")},
		{"a prevResult that is nonsense", set("prevResult", json.RawMessage(`{"cniVersion":"1.1.0","ips":"none"}`))},
	}
	for i, s := range shapes {
		cases = append(cases, Case{
			ID: fmt.Sprintf("DEL-13@%02d", i), Level: SHOULD, Spec: "CNI 1.1.0, section 2 DEL: to the fullest extent possible",
			Claim: "DEL with " + s.claim + " succeeds, removes the interface and frees the address",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				c.Added(n.Add(p.Eth0()))
				c.Silent(n.Del(p.Eth0(), s.edit))
				c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
				n.MustHaveFree(1)
			},
		})
	}
	return cases
}
