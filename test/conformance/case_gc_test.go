// SPDX-License-Identifier: Apache-2.0

package conformance

const specGC = "CNI 1.1.0, section 2 GC"

func gcCases() []Case {
	return []Case{
		{
			ID: "GC-02", Level: SHOULD, Spec: specGC,
			Claim: "GC frees the addresses of attachments that are not listed and whose namespace is gone",
			Run: func(c *C) {
				n, dead, alive := c.Tiny(2), c.Pod(), c.Pod()
				c.Added(n.Add(dead.Eth0()))
				add := c.Added(n.Add(alive.Eth0()))
				c.vanish(dead)
				c.Silent(n.GC(valid(alive.Eth0())))
				c.stillAttached(n, alive, add, Newest)
				n.MustHaveFree(1)
			},
		},
		{
			ID: "GC-03", Level: SHOULD, Spec: specGC,
			Claim: "GC with an empty list frees everything whose namespace is gone",
			Run: func(c *C) {
				n, a, b := c.Tiny(2), c.Pod(), c.Pod()
				c.Added(n.Add(a.Eth0()))
				c.Added(n.Add(b.Eth0()))
				c.vanish(a)
				c.vanish(b)
				c.Silent(n.GC(valid()))
				n.MustHaveFree(2)
			},
		},
		gcSpares("GC-04", "an empty list", valid()),
		gcSpares("GC-05", "no list at all", func(Object) {}),
		gcSpares("GC-06", "a list that is null", set("cni.dev/valid-attachments", nil)),
		gcSpares("GC-07", "a list of other containers", valid(Attachment{ContainerID: "somebody-else", Ifname: "eth0"})),
		{
			ID: "GC-08", Level: MUST, Spec: "CNI 1.1.0, section 2 GC: still valid attachments",
			Claim: "GC does not free an attachment that is listed, whatever has become of its namespace",
			Run: func(c *C) {
				n, p := c.Tiny(2), c.Pod()
				c.Added(n.Add(p.Eth0()))
				c.vanish(p)
				c.Silent(n.GC(valid(p.Eth0())))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "GC-09", Level: MUST, Spec: specGC,
			Claim: "The list counts container and interface: another interface of a listed container is not listed",
			Run: func(c *C) {
				n, p := c.Tiny(3), c.Pod()
				c.Added(n.Add(p.Eth0()))
				c.Added(n.Add(p.On("net1"), withoutRoutes))
				c.vanish(p)
				c.Silent(n.GC(valid(p.On("net1"))))
				n.MustHaveFree(2)
			},
		},
		{
			ID: "GC-10", Level: SHOULD, Spec: "libcni: both keys are sent, drafts had the second",
			Claim: "The list is understood under the key cni.dev/attachments too, and under both",
			Run: func(c *C) {
				n, dead, listed := c.Tiny(3), c.Pod(), c.Pod()
				c.Added(n.Add(dead.Eth0()))
				c.Added(n.Add(listed.Eth0()))
				c.vanish(dead)
				c.vanish(listed)
				list := attachmentList(listed.Eth0())
				c.Silent(n.GC(set("cni.dev/attachments", list)))
				c.Silent(n.GC(set("cni.dev/attachments", list), set("cni.dev/valid-attachments", list)))
				n.MustHaveFree(2)
			},
		},
		{
			ID: "GC-11", Level: SHOULD, Spec: specGC,
			Claim: "GC may be repeated: three in a row change no more than one",
			Run: func(c *C) {
				n, dead, alive := c.Tiny(2), c.Pod(), c.Pod()
				c.Added(n.Add(dead.Eth0()))
				add := c.Added(n.Add(alive.Eth0()))
				c.vanish(dead)
				c.Silent(n.GC(valid(alive.Eth0())))
				host, pod := c.Snapshot(c.Host), c.Snapshot(alive.Netns)
				for range 3 {
					c.Silent(n.GC(valid(alive.Eth0())))
				}
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(alive.Netns))
				c.stillAttached(n, alive, add, Newest)
				n.MustHaveFree(1)
			},
		},
		{
			ID: "GC-12", Level: SHOULD, Spec: "Weft, GC: an absent list allows only self-evidence", Needs: FeatureWeft,
			Claim: "GC without a list frees what has evidently lost its namespace",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				c.Added(n.Add(p.Eth0()))
				c.vanish(p)
				c.Silent(n.GC())
				n.MustHaveFree(1)
			},
		},
		{
			ID: "GC-13", Level: SHOULD, Spec: specGC,
			Claim: "GC of one network leaves the attachments of another alone",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				c.Silent(n.GC(valid(), set("name", "another")))
				c.stillAttached(n, p, add, Newest)
				c.Fails(n.Add(c.Pod().Eth0()))
			},
		},
		{
			ID: "GC-14", Level: MUST, Spec: specGC,
			Claim: "GC and STATUS with nothing to do succeed, and a list that cannot be read frees nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				c.Silent(n.GC(valid()))
				c.Added(n.Add(p.Eth0()))
				c.vanish(p)
				c.Fails(n.GC(set("cni.dev/valid-attachments", "all")))
				c.Fails(n.Add(c.Pod().Eth0()))
			},
		},
	}
}

// gcSpares runs GC while the attachment demonstrably lives. The specification
// lets a plugin trust the list; runtimes send lists that are empty because
// they lost their cache, so Weft does not.
func gcSpares(id, list string, edit func(Object)) Case {
	return Case{
		ID: id, Level: MUST, Spec: "Weft, GC: never destroys an attachment that lives",
		Claim: "GC with " + list + " leaves an attachment alone whose namespace lives with the interface in it",
		Run: func(c *C) {
			n, p := c.Tiny(1), c.Pod()
			add := c.Added(n.Add(p.Eth0()))
			pod := c.Snapshot(p.Netns)
			for range 3 {
				c.Silent(n.GC(edit))
			}
			c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
			c.stillAttached(n, p, add, Newest)
			c.Fails(n.Add(c.Pod().Eth0()))
		},
	}
}

// vanish ends a pod's namespace without DEL and waits until the kernel has
// removed the interfaces with it.
func (c *C) vanish(p *Pod) {
	if !p.HasLink("eth0") {
		p.Delete()
		return
	}
	end := c.HostEnd(p, "eth0").Attrs().Name
	p.Delete()
	if !c.Until(2*settle, func() bool { return !c.Host.HasLink(end) }) {
		c.Fatalf("set up: the kernel did not remove %s with the pod's namespace", end)
	}
}
