// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/netip"
	"slices"
)

const specIPAM = "CNI 1.1.0, section 5 Delegated plugins (IPAM)"

// ipamCases are about the IPAM plugin: called directly, as a delegating plugin
// calls it, and underneath the reference bridge and ptp.
func ipamCases() []Case {
	cases := []Case{
		{
			ID: "IPAM-01", Level: MUST, Spec: specIPAM,
			Claim: "The IPAM plugin answers without interfaces and without ips[].interface",
			Run: func(c *C) {
				i := c.ipamOf(1)
				add := i.Do("ADD", c.Pod().Eth0())
				r := c.Result(add)
				if r.Interfaces != nil || len(r.IPs) != 1 || r.IPs[0].Interface != nil || len(r.Routes) != 1 {
					c.Errorf("want one address without interface, the route and no interfaces: %s", oneLine(add.Stdout))
				}
				if bits := r.IPs[0].Address.Bits(); bits != 20 {
					c.Errorf("the address has prefix length %d, want that of the subnet, 20", bits)
				}
			},
		},
		{
			ID: "IPAM-02", Level: SHOULD, Spec: specDel,
			Claim: "The IPAM plugin frees at DEL, with and without namespace, any number of times",
			Run: func(c *C) {
				i, p := c.ipamOf(1), c.Pod()
				for _, netns := range []string{p.Path, "", "/nowhere"} {
					c.Added(i.Do("ADD", p.Eth0()))
					a := p.Eth0()
					a.Netns = netns
					c.Silent(i.Do("DEL", a))
					c.Silent(i.Do("DEL", a))
				}
			},
		},
		{
			ID: "IPAM-03", Level: SHOULD, Spec: specError,
			Claim: "The IPAM plugin without a free address: ADD is error 11",
			Run: func(c *C) {
				i := c.ipamOf(1)
				c.Added(i.Do("ADD", c.Pod().Eth0()))
				c.Fails(i.Do("ADD", c.Pod().Eth0()), 11)
			},
		},
		{
			ID: "IPAM-04", Level: SHOULD, Spec: specStatus,
			Claim: "The IPAM plugin without a free address: STATUS is error 50 or 51",
			Run: func(c *C) {
				i := c.ipamOf(1)
				c.Silent(i.Do("STATUS", Attachment{}))
				c.Added(i.Do("ADD", c.Pod().Eth0()))
				c.Fails(i.Do("STATUS", Attachment{}), 50, 51)
			},
		},
		{
			ID: "IPAM-05", Level: SHOULD, Spec: specCheck,
			Claim: "The IPAM plugin's CHECK succeeds while the address is reserved and is an error afterwards",
			Run: func(c *C) {
				i, p := c.ipamOf(1), c.Pod()
				add := c.Added(i.Do("ADD", p.Eth0()))
				c.Silent(i.Do("CHECK", p.Eth0(), prev(add)))
				c.Silent(i.Do("DEL", p.Eth0()))
				c.Fails(i.Do("CHECK", p.Eth0(), prev(add)))
			},
		},
		{
			ID: "IPAM-06", Level: SHOULD, Spec: specGC,
			Claim: "The IPAM plugin's GC frees what is not listed and gone, and keeps what is listed",
			Run: func(c *C) {
				i, dead, listed := c.ipamOf(2), c.Pod(), c.Pod()
				c.Added(i.Do("ADD", dead.Eth0()))
				c.Added(i.Do("ADD", listed.Eth0()))
				dead.Delete()
				c.Silent(i.Do("GC", Attachment{}, valid(listed.Eth0())))
				c.Added(i.Do("ADD", c.Pod().Eth0()))
				c.Fails(i.Do("ADD", c.Pod().Eth0()))
			},
		},
		{
			ID: "IPAM-07", Level: MUST, Spec: specResult,
			Claim: "The IPAM plugin reads every form of host-local's ranges, both families and requested addresses",
			Run: func(c *C) {
				i := c.ipamOf(1)
				i.section = with(with(i.section, "ranges", List{
					List{Object{"subnet": "10.44.0.0/24", "rangeStart": "10.44.0.7", "rangeEnd": "10.44.0.7"}, Object{"subnet": "10.45.0.0/24", "gateway": "10.45.0.254"}},
					List{Object{"subnet": "fd00:44::/64"}},
				}), "subnet", "10.43.0.0/24")
				i.section["gateway"] = "10.43.0.200"
				r := c.Result(i.Do("ADD", c.Pod().Eth0()))
				if len(r.IPs) != 3 || !netip.MustParsePrefix("10.43.0.0/24").Contains(r.IPs[0].Address.Addr()) ||
					r.IPs[0].Gateway.String() != "10.43.0.200" || r.IPs[1].Address.String() != "10.44.0.7/24" || !r.IPs[2].Address.Addr().Is6() {
					c.Errorf("the result is %s", asJSON(r.IPs))
				}
				r = c.Result(i.Do("ADD", c.Pod().Eth0(), capability("ips", List{"10.45.0.99"})))
				if r.IPs[1].Address.String() != "10.45.0.99/24" || r.IPs[1].Gateway.String() != "10.45.0.254" {
					c.Errorf("the result is %s", asJSON(r.IPs))
				}
			},
		},
		{
			ID: "IPAM-08", Level: SHOULD, Spec: "CNI 1.1.0, section 5 Error; Weft, bad input",
			Claim: "Ranges that overlap, run backwards or leave their subnet are an error that names them",
			Run: func(c *C) {
				i := c.ipamOf(1)
				for _, bad := range []List{
					{List{Object{"subnet": "10.44.0.0/24"}}, List{Object{"subnet": "10.44.0.0/16"}}},
					{List{Object{"subnet": "10.44.0.0/24", "rangeStart": "10.44.0.9", "rangeEnd": "10.44.0.8"}}},
					{List{Object{"subnet": "10.44.0.0/24", "rangeStart": "10.45.0.9"}}},
					{List{Object{"subnet": "10.44.0.0/33"}}},
					{},
				} {
					i.section = with(i.section, "ranges", bad)
					if f := c.Fails(i.Do("ADD", c.Pod().Eth0())); len(bad) > 0 {
						c.Names(f, "10.44.0.")
					}
				}
			},
		},
	}
	for _, v := range Versions {
		cases = append(cases, Case{
			ID: "IPAM-09@" + v, Level: MUST, Spec: specIPAM,
			Claim: "The IPAM plugin answers in the version of the request",
			Run: func(c *C) {
				i := c.ipamOf(1)
				add := c.Added(i.Do("ADD", c.Pod().Eth0(), set("cniVersion", v)))
				s := resultShape(v)
				if s.below["ips"].required != nil {
					s.required = []string{"cniVersion", "ips"}
				}
				for _, fault := range s.check("result", add.Stdout) {
					c.Errorf("%s", fault)
				}
				if !containsCompact(add.Stdout, `"cniVersion":"`+v+`"`) {
					c.Errorf("cniVersion is not %s: %s", v, oneLine(add.Stdout))
				}
			},
		})
	}
	return slices.Concat(cases, underneath("bridge"), underneath("ptp"), underneath("macvlan"))
}

// ipamPlugin is the subject's IPAM plugin with a network.
type ipamPlugin struct {
	c       *C
	section Object
	upper   Object // the configuration of the plugin above
}

func (c *C) ipamOf(count int) *ipamPlugin {
	n := &Network{StateDir: c.Path("ipam"), Ranges: List{List{few(count)}}, Routes: List{default4}, c: c}
	plugin := c.Subject.IPAM
	if plugin != "host-local" {
		plugin = "weft-ipam"
	}
	return &ipamPlugin{c: c, section: n.ipam(plugin), upper: Object{"type": "upper"}}
}

// Conf returns the complete configuration of the plugin above.
func (i *ipamPlugin) Conf(edits ...func(Object)) Object {
	conf := with(with(with(i.upper, "cniVersion", Newest), "name", "delegated"), "ipam", i.section)
	for _, edit := range edits {
		edit(conf)
	}
	return conf
}

// Do executes the IPAM plugin itself.
func (i *ipamPlugin) Do(verb string, a Attachment, edits ...func(Object)) *Call {
	return i.c.Exec(i.c.Subject.IPAM, i.c.env(verb, a), i.c.encode(i.Conf(edits...)))
}

// underneath runs a reference plugin with the IPAM plugin below it.
func underneath(upper string) []Case {
	config := map[string]Object{
		"bridge":  {"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true},
		"ptp":     {"type": "ptp", "ipMasq": true},
		"macvlan": {"type": "macvlan", "master": "uplink0"},
	}[upper]
	return []Case{{
		ID: "IPAM-10@" + upper, Level: MUST, Spec: specDelegate,
		Claim: "The reference " + upper + " works with the IPAM plugin: ADD, CHECK, DEL, and the address is freed",
		Run: func(c *C) {
			i, p := c.ipamOf(1), c.Pod()
			i.upper = config
			do := func(verb string, p *Pod, edits ...func(Object)) *Call {
				return c.execUpper(upper, verb, p.Eth0(), i.Conf(edits...))
			}
			add := do("ADD", p)
			addr := c.Addr(add)
			if !c.HasAddr(p.Netns, "eth0", addr) {
				c.Errorf("%s is not on eth0", addr)
			}
			c.Silent(do("CHECK", p, prev(add)))
			c.Fails(do("ADD", c.Pod()))
			c.Silent(do("DEL", p, prev(add)))
			c.Silent(do("DEL", p, prev(add)))
			c.Added(do("ADD", c.Pod()))
		},
	}, {
		ID: "IPAM-11@" + upper, Level: MUST, Spec: specStatus,
		Claim: "The reference " + upper + " learns from the IPAM plugin that ADD cannot succeed",
		Run: func(c *C) {
			i := c.ipamOf(1)
			i.upper = config
			c.Silent(c.execUpper(upper, "STATUS", Attachment{}, i.Conf()))
			c.Added(c.execUpper(upper, "ADD", c.Pod().Eth0(), i.Conf()))
			c.Fails(c.execUpper(upper, "STATUS", Attachment{}, i.Conf()))
		},
	}}
}

// execUpper executes a reference plugin. A subject that stands in for another
// one stands in for these as well.
func (c *C) execUpper(upper, verb string, a Attachment, conf Object) *Call {
	if isStandIn(c.Subject.Binary) {
		upper = c.Subject.Binary
	}
	return c.Exec(upper, c.env(verb, a), c.encode(conf))
}

func isStandIn(binary string) bool { return binary == "/bin/true" || binary == "/bin/false" }
