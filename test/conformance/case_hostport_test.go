// SPDX-License-Identifier: Apache-2.0

package conformance

import "strings"

// containerd's spelling: its structures have no JSON tags.
var (
	mappedPorts = List{
		Object{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""},
		Object{"HostPort": 5353, "ContainerPort": 53, "Protocol": "udp", "HostIP": ""},
		Object{"HostPort": 9000, "ContainerPort": 90, "Protocol": "sctp", "HostIP": ""},
	}
	limitedRates = Object{"IngressRate": 10_000_000, "IngressBurst": uint32(1<<32 - 1), "EgressRate": 5_000_000, "EgressBurst": uint32(1<<32 - 1)}
)

func hostPortCases() []Case {
	return []Case{
		{
			ID: "CAP-11", Level: MUST, Spec: specCapability,
			Claim: "Capability portMappings: the host leads TCP, UDP and SCTP to the pod, CHECK agrees, and DEL leaves nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				before := c.inHost("nft", "list", "tables")
				edit := capability("portMappings", mappedPorts)
				add := n.Add(p.Eth0(), edit)
				c.Result(add)
				rules := c.inHost("nft", "list", "ruleset")
				for _, port := range []string{"8080", "5353", "9000"} {
					if !strings.Contains(rules, port) {
						c.Errorf("the host has no rule for port %s", port)
					}
				}
				c.Silent(n.Check(p.Eth0(), add, edit))
				c.Silent(n.Del(p.Eth0(), prev(add)))
				c.Eventually("the rules are gone", func() bool { return c.inHost("nft", "list", "tables") == before })
				n.MustHaveFree(1)
			},
		},
		{
			ID: "CAP-12", Level: MUST, Spec: specCapability,
			Claim: "Capability bandwidth, as containerd passes it: the host's end has a token bucket, CHECK agrees, and DEL leaves nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				edit := capability("bandwidth", limitedRates)
				add := n.Add(p.Eth0(), edit)
				c.Result(add)
				if qdiscs := c.inHost("tc", "qdisc", "show"); strings.Count(qdiscs, "tbf") != 2 {
					c.Errorf("want a token bucket in each direction: %s", qdiscs)
				}
				c.Silent(n.Check(p.Eth0(), add, edit))
				c.Silent(n.Del(p.Eth0(), prev(add)))
				c.Eventually("the interfaces are gone", func() bool { return !strings.Contains(c.inHost("tc", "qdisc", "show"), "tbf") })
				n.MustHaveFree(1)
			},
		},
		{
			ID: "CAP-13", Level: MUST, Spec: "Weft, hostPort: a conflict is refused by name", Needs: FeatureWeft,
			Claim: "A host port that another pod has is error 105 that names port and attachment, and changes nothing",
			Run: func(c *C) {
				n, p, holder := c.Tiny(2), c.Pod(), c.Pod()
				edit := capability("portMappings", mappedPorts)
				first := n.Add(holder.Eth0(), edit)
				c.Result(first)
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				c.Names(c.Fails(n.Add(p.Eth0(), edit), 105), "tcp *:8080", holder.ID)
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
				c.Silent(n.Del(holder.Eth0(), prev(first), edit))
				c.Result(n.Add(p.Eth0(), edit))
			},
		},
		{
			ID: "CAP-14", Level: MUST, Spec: specCheck, Needs: FeatureWeft,
			Claim: "CHECK names a mapping that somebody deleted, and a limit that somebody changed",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				edits := []func(Object){set("runtimeConfig", Object{"portMappings": mappedPorts, "bandwidth": limitedRates})}
				add := n.Add(p.Eth0(), edits...)
				c.Result(add)
				c.inHost("nft", "delete", "element", "inet", "weft-hostport", "any4", "{ tcp . 8080 }")
				c.inHost("tc", "qdisc", "del", "dev", c.HostEnd(p, "eth0").Attrs().Name, "root")
				c.Names(c.Fails(n.Check(p.Eth0(), add, edits...), 101), "tcp 0.0.0.0:8080", "queue of link")
			},
		},
		{
			ID: "CAP-15", Level: MUST, Spec: specCapability, Needs: FeatureWeft,
			Claim: "portMappings with an IPv6 hostIP for a pod without IPv6, or with a port out of range, is an error that says so, and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				six := List{Object{"hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "2001:db8::1"}}
				c.Names(c.Fails(n.Add(p.Eth0(), capability("portMappings", six)), 7), "2001:db8::1", "family")
				large := List{Object{"hostPort": 65536, "containerPort": 80, "protocol": "tcp"}}
				c.Names(c.Fails(n.Add(p.Eth0(), capability("portMappings", large)), 7), "65536")
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		},
	}
}
