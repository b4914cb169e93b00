// SPDX-License-Identifier: Apache-2.0

package conformance

const specStatus = "CNI 1.1.0, section 2 STATUS"

func statusCases() []Case {
	return []Case{
		{
			ID: "STATUS-02", Level: MUST, Spec: specStatus,
			Claim: "STATUS succeeds, silently, when ADD would succeed, and changes nothing",
			Run: func(c *C) {
				n := c.Tiny(1)
				before := c.Snapshot(c.Host)
				c.Silent(n.Status())
				c.Unchanged("the host", before, c.Snapshot(c.Host))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "STATUS-03", Level: SHOULD, Spec: specStatus,
			Claim: "STATUS is error 50 or 51 when the addresses are exhausted, and succeeds again when one is free",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				c.Silent(n.Status())
				add := c.Added(n.Add(p.Eth0()))
				c.Fails(n.Status(), 50, 51)
				c.Silent(n.Del(p.Eth0(), prev(add)))
				c.Eventually("STATUS succeeds", func() bool { return n.Status().Code == 0 })
			},
		},
		{
			ID: "STATUS-04", Level: MUST, Spec: "CNI 1.1.0, section 2 STATUS: other operations are to be expected",
			Claim: "CHECK, GC and DEL work while STATUS is an error",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				n.Status()
				c.Silent(n.Check(p.Eth0(), add))
				c.Silent(n.GC(valid(p.Eth0())))
				c.Silent(n.Del(p.Eth0(), prev(add)))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "STATUS-05", Level: MUST, Spec: specStatus,
			Claim: "STATUS is an error when the configuration could not serve an ADD",
			Run: func(c *C) {
				n := c.Net()
				c.Silent(n.Status())
				c.Fails(n.Status(set("ipam", Object{"type": "no-such-ipam"}), drop("socket")))
			},
		},
	}
}
