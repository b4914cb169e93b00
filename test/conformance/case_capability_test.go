// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/netip"
	"slices"
)

const (
	specCapability = "CONVENTIONS, Dynamic plugin specific fields: act on the configuration or return an error"
	specArgs       = "CONVENTIONS, args in network config"
	specCNIArgs    = "CONVENTIONS, CNI_ARGS"
)

func capabilityCases() []Case {
	return slices.Concat(refusedCapabilities(), hostPortCases(), []Case{
		{
			ID: "CAP-02", Level: MUST, Spec: specCapability,
			Claim: "Capability ips: the pod gets the address, with or without prefix length",
			Run: func(c *C) {
				n := c.Net()
				for _, want := range []string{"10.42.0.77", "10.42.0.78/20"} {
					p := c.Pod()
					got := c.Addr(n.Add(p.Eth0(), capability("ips", List{want})))
					if bare, _, _ := cutPrefix(want); got.String() != bare {
						c.Errorf("asked for %s, got %s", want, got)
					}
					if !c.HasAddr(p.Netns, "eth0", got) {
						c.Errorf("%s is not on eth0", got)
					}
				}
			},
		},
		{
			ID: "CAP-03", Level: MUST, Spec: specCapability,
			Claim: "Capability ips of both families: the pod gets both addresses",
			Run: func(c *C) {
				r := c.Result(c.Dual().Add(c.Pod().Eth0(), capability("ips", List{"fd00:42::77", "10.42.0.77"})))
				if got := addressesOf(r); got != "10.42.0.77 fd00:42::77" {
					c.Errorf("got %s", got)
				}
			},
		},
		{
			ID: "CAP-04", Level: MUST, Spec: specCapability,
			Claim: "Capability ips outside of the ranges is an error that names the address, and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				c.Names(c.Fails(n.Add(p.Eth0(), capability("ips", List{"10.99.0.1"}))), "10.99.0.1")
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "CAP-05", Level: MUST, Spec: specCapability,
			Claim: "Capability ips of an address that another pod has is an error that names it, and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(2), c.Pod()
				taken := c.Addr(n.Add(c.Pod().Eth0())).String()
				pod := c.Snapshot(p.Netns)
				f := c.Fails(n.Add(p.Eth0(), capability("ips", List{taken})))
				c.Names(f, taken)
				if c.Subject.Has(FeatureWeft) && f.Code != 102 {
					c.Errorf("code is %d, want 102", f.Code)
				}
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "CAP-06", Level: MUST, Spec: specCapability,
			Claim: "Capability mac: the pod's interface has the MAC, in the kernel and in the result, and CHECK agrees",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				const mac = "02:00:5e:00:53:42"
				edit := capability("mac", mac)
				add := n.Add(p.Eth0(), edit)
				if got := c.InSandbox(c.Result(add)).Mac; got != mac {
					c.Errorf("the result has %s, want %s", got, mac)
				}
				if got := c.Link(p.Netns, "eth0").Attrs().HardwareAddr.String(); got != mac {
					c.Errorf("the kernel has %s, want %s", got, mac)
				}
				c.Silent(n.Check(p.Eth0(), add, edit))
			},
		},
		{
			ID: "CAP-07", Level: MUST, Spec: specCapability,
			Claim: "Capability mac that is none is an error that names it, and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				pod := c.Snapshot(p.Netns)
				c.Names(c.Fails(n.Add(p.Eth0(), capability("mac", "not-a-mac"))), "not-a-mac")
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		},
		dnsCapability("CAP-08", "servers", "searches", "options"),
		dnsCapability("CAP-09", "Servers", "Searches", "Options"),
		{
			ID: "CAP-10", Level: MUST, Spec: specCapability,
			Claim: "Capability ipRanges: an address comes from the range, or error 2 names key and value",
			Run: func(c *C) {
				n := c.Net()
				call := n.Add(c.Pod().Eth0(), capability("ipRanges", List{List{Object{"subnet": "10.77.0.0/24"}}}))
				if call.Code != 0 {
					c.Names(c.Fails(call, 2), "ipRanges", "10.77.0.0/24")
					return
				}
				pool := netip.MustParsePrefix("10.77.0.0/24")
				if !slices.ContainsFunc(c.Result(call).IPs, func(ip IP) bool { return pool.Contains(ip.Address.Addr()) }) {
					c.Errorf("no address of %s: %s", pool, oneLine(call.Stdout))
				}
			},
		},
	})
}

// dnsCapability uses the keys of CONVENTIONS.md, and those of go-cni, whose Go
// structs have no JSON tags.
func dnsCapability(id, servers, searches, options string) Case {
	return Case{
		ID: id, Level: MUST, Spec: specCapability,
		Claim: "Capability dns, with key " + servers + ", is dns of the result",
		Run: func(c *C) {
			r := c.Result(c.Net().Add(c.Pod().Eth0(), capability("dns", Object{
				servers: List{"8.8.8.8"}, searches: List{"corp.example"}, options: List{"ndots:2"},
			})))
			if got := asJSON(r.DNS); got != asJSON(DNS{[]string{"8.8.8.8"}, "", []string{"corp.example"}, []string{"ndots:2"}}) {
				c.Errorf("dns is %s", got)
			}
		},
	}
}

// refusedCapabilities are supplied to a plugin that cannot act on them.
func refusedCapabilities() (cases []Case) {
	for _, k := range []struct {
		key   string
		value any
		text  string
	}{
		{"infinibandGUID", "c2:11:22:33:44:55:66:77", "c2:11:22:33:44:55:66:77"},
		{"deviceID", "0000:04:00.5", "0000:04:00.5"},
		{"aliases", List{"primary-db"}, "primary-db"},
	} {
		cases = append(cases, Case{
			ID: "CAP-01@" + k.key, Level: MUST, Spec: specError,
			Claim: "Capability " + k.key + ", which is not supported, is error 2 that holds key and value, and nothing is changed",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				c.Names(c.Fails(n.Add(p.Eth0(), capability(k.key, k.value)), 2), k.key, k.text)
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		})
	}
	return cases
}

func argsCases() []Case {
	asked := func(id string, level Level, spec, claim, want string, args string, edits ...func(Object)) Case {
		return Case{
			ID: id, Level: level, Spec: spec, Claim: claim,
			Run: func(c *C) {
				a := c.Pod().Eth0()
				a.Args = args
				if got := c.Addr(c.Net().Add(a, edits...)).String(); got != want {
					c.Errorf("got %s, want %s", got, want)
				}
			},
		}
	}
	argsIPs := func(ips ...any) func(Object) {
		return set("args", Object{"cni": Object{"ips": List(ips)}})
	}
	refused := func(id, claim, args string, words ...string) Case {
		return Case{
			ID: id, Level: SHOULD, Spec: specError, Claim: claim,
			Run: func(c *C) {
				n, a := c.Tiny(1), c.Pod().Eth0()
				a.Args = args
				c.Names(c.Fails(n.Add(a), 4, 7), words...)
				n.MustHaveFree(1)
			},
		}
	}
	return []Case{
		asked("ARGS-01", SHOULD, specArgs, "args.cni.ips: the pod gets the address", "10.42.0.55", "", argsIPs("10.42.0.55")),
		asked("ARGS-02", SHOULD, specArgs, "args.cni.ips with a prefix length: the pod gets the address", "10.42.0.56", "", argsIPs("10.42.0.56/20")),
		asked("ARGS-03", SHOULD, specCNIArgs, "CNI_ARGS IP: the pod gets the address", "10.42.0.57", "IgnoreUnknown=1;IP=10.42.0.57"),
		asked("ARGS-04", SHOULD, specCNIArgs, "CNI_ARGS IP with a prefix length: the pod gets the address", "10.42.0.58", "IP=10.42.0.58/20"),
		asked("ARGS-05", MUST, specCNIArgs, "args.cni.ips is given, so CNI_ARGS IP is ignored", "10.42.0.60", "IP=10.42.0.61", argsIPs("10.42.0.60")),
		asked("ARGS-06", SHOULD, specCapability, "Capability ips is given, so args.cni.ips and CNI_ARGS IP are ignored", "10.42.0.62",
			"IP=10.42.0.63", argsIPs("10.42.0.64"), capability("ips", List{"10.42.0.62"})),
		{
			ID: "ARGS-07", Level: MUST, Spec: specCNIArgs,
			Claim: "What containerd and CRI-O pass in CNI_ARGS is accepted by every verb",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				a := p.Eth0()
				a.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=" + p.ID +
					";K8S_POD_UID=7a2c1a3e-0000-4000-8000-000000000000;SOMETHING=new"
				add := c.Added(n.Add(a))
				c.Silent(n.Check(a, add))
				c.Silent(n.Del(a, prev(add)))
				c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
			},
		},
		refused("ARGS-08", "An unknown key in CNI_ARGS without IgnoreUnknown is an error that names it", "FOO=BAR", "FOO"),
		refused("ARGS-09", "CNI_ARGS without \"=\" is an error that names the variable", "FOO", "CNI_ARGS"),
		refused("ARGS-10", "CNI_ARGS IP that is no address is an error that names it", "IP=nonsense", "nonsense"),
		{
			ID: "ARGS-11", Level: SHOULD, Spec: specDel,
			Claim: "DEL succeeds with CNI_ARGS that ADD would refuse",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				a := p.Eth0()
				a.Args = "FOO;IP=nonsense"
				c.Silent(n.Del(a, prev(add)))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "ARGS-12", Level: SHOULD, Spec: "CONVENTIONS: args are optional meta-data that may be ignored",
			Claim: "args that the plugin does not understand are no error",
			Run: func(c *C) {
				c.Added(c.Net().Add(c.Pod().Eth0(), set("args", Object{
					"cni": Object{"labels": List{Object{"key": "app", "value": "x"}}}, "vendor": List{1, 2},
				})))
			},
		},
	}
}

func addressesOf(r Result) string {
	var all []string
	for _, ip := range r.IPs {
		all = append(all, ip.Address.Addr().String())
	}
	slices.Sort(all)
	return join(all)
}
