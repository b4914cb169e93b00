// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"
)

const specParameters = "CNI 1.1.0, section 2 Parameters"

// errorCases are about the form of errors, whatever the cause.
func errorCases() []Case {
	causes := []struct {
		name string
		call func(c *C) *Call
	}{
		{"environment", func(c *C) *Call {
			return c.Exec(c.Subject.Binary, c.env("ADD", c.Pod().Eth0()).Without("CNI_IFNAME"), c.encode(c.Net().Conf()))
		}},
		{"decode", func(c *C) *Call {
			return c.Exec(c.Subject.Binary, c.env("ADD", c.Pod().Eth0()), []byte(`{"cniVersion":`))
		}},
		{"config", func(c *C) *Call { return c.Net().Add(c.Pod().Eth0(), drop("name")) }},
		{"netns", func(c *C) *Call {
			a := c.Pod().Eth0()
			a.Netns = c.Path("nowhere")
			return c.Net().Add(a)
		}},
		{"exhausted", func(c *C) *Call {
			n := c.Tiny(1)
			c.Added(n.Add(c.Pod().Eth0()))
			return n.Add(c.Pod().Eth0())
		}},
		{"exists", func(c *C) *Call {
			n, p := c.Net(), c.Pod()
			c.dummy(p.Netns, "eth0")
			return n.Add(p.Eth0())
		}},
		{"check", func(c *C) *Call {
			n, p := c.Net(), c.Pod()
			return n.Do("CHECK", p.Eth0(), n.Conf())
		}},
	}
	var cases []Case
	for _, cause := range causes {
		cases = append(cases,
			Case{
				ID: "ERROR-01@" + cause.name, Level: SHOULD, Spec: specError,
				Claim: "An error is one JSON object on standard output with code and msg, and the exit code is not 0",
				Run:   func(c *C) { c.Fails(cause.call(c)) },
			},
			Case{
				ID: "ERROR-02@" + cause.name, Level: SHOULD, Spec: specError,
				Claim: "The error object carries the protocol version in use",
				Run: func(c *C) {
					if f := c.Fails(cause.call(c)); f.CNIVersion != Newest {
						c.Errorf("cniVersion is %q, want %q", f.CNIVersion, Newest)
					}
				},
			},
			Case{
				ID: "ERROR-03@" + cause.name, Level: SHOULD, Spec: specError,
				Claim: "The code says what went wrong; it is not the library's 999",
				Run: func(c *C) {
					if f := c.Fails(cause.call(c)); f.Code == 999 {
						c.Errorf("code 999: %s", f.Text())
					}
				},
			})
	}
	return cases
}

// environmentCases leave out and spoil the variables.
func environmentCases() (cases []Case) {
	required := []struct {
		verb      string
		variables []string
	}{
		{"ADD", []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}},
		{"DEL", []string{"CNI_CONTAINERID", "CNI_IFNAME"}},
		{"CHECK", []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}},
	}
	for _, r := range required {
		for _, v := range r.variables {
			cases = append(cases, missingVariable(r.verb, v)...)
		}
		cases = append(cases, Case{
			ID: "ENV-03@" + r.verb, Level: MUST, Spec: specError,
			Claim: "Where several variables are missing, error 4 names them all",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				env := c.env(r.verb, p.Eth0()).Without(r.variables...)
				c.Names(c.Fails(c.Exec(c.Subject.Binary, env, c.encode(n.Conf())), 4), r.variables...)
			},
		})
	}
	cases = append(cases, commandCases()...)
	for i, id := range []string{"", ".", "-a", "_a", "a/b", "../a", "a b", "a;b", "a\nb", "é", "a:b"} {
		cases = append(cases, invalidVariable(fmt.Sprintf("ENV-10@%d", i), "CNI_CONTAINERID", id))
	}
	for i, name := range []string{"a234567890123456", ".", "..", "a/b", "a:b", "a b", "a\tb", "a\nb"} {
		cases = append(cases, invalidVariable(fmt.Sprintf("ENV-11@%d", i), "CNI_IFNAME", name))
	}
	return append(cases, acceptedNameCases()...)
}

func missingVariable(verb, variable string) []Case {
	run := func(spoil func(Env) Env) func(c *C) {
		return func(c *C) {
			n, p := c.Net(), c.Pod()
			before := c.Snapshot(p.Netns)
			env := spoil(c.env(verb, p.Eth0()))
			c.Names(c.Fails(c.Exec(c.Subject.Binary, env, c.encode(n.Conf())), 4), variable)
			c.Unchanged("the pod", before, c.Snapshot(p.Netns))
		}
	}
	return []Case{
		{
			ID: "ENV-01@" + verb + "-" + variable, Level: MUST, Spec: specError,
			Claim: verb + " without " + variable + " is error 4, and the message names it",
			Run:   run(func(e Env) Env { return e.Without(variable) }),
		},
		{
			ID: "ENV-02@" + verb + "-" + variable, Level: MUST, Spec: specError,
			Claim: verb + " with " + variable + " empty is error 4, and the message names it",
			Run:   run(func(e Env) Env { return e.With(variable, "") }),
		},
	}
}

func commandCases() []Case {
	return []Case{
		{
			ID: "ENV-04", Level: MUST, Spec: specError,
			Claim: "Without CNI_COMMAND the plugin fails with error 4 that names it",
			Run: func(c *C) {
				n := c.Net()
				env := c.env("", c.Pod().Eth0()).Without("CNI_COMMAND")
				c.Names(c.Fails(c.Exec(c.Subject.Binary, env, c.encode(n.Conf())), 4), "CNI_COMMAND")
			},
		},
		{
			ID: "ENV-05", Level: MUST, Spec: specError,
			Claim: "An unknown CNI_COMMAND is error 4 that names the variable and the value",
			Run: func(c *C) {
				n := c.Net()
				env := c.env("FROBNICATE", c.Pod().Eth0())
				c.Names(c.Fails(c.Exec(c.Subject.Binary, env, c.encode(n.Conf())), 4), "CNI_COMMAND", "FROBNICATE")
			},
		},
		{
			ID: "ENV-06", Level: MUST, Spec: "CNI 1.1.0, section 2 ADD, DEL, CHECK, STATUS", Needs: FeatureWeft,
			Claim: "CNI_PATH is optional for ADD, CHECK, STATUS and DEL where nothing is delegated",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				do := func(verb string, edits ...func(Object)) *Call {
					return c.Exec(c.Subject.Binary, c.env(verb, p.Eth0()).Without("CNI_PATH"), c.encode(n.Conf(edits...)))
				}
				add := c.Added(do("ADD"))
				c.Silent(do("CHECK", prev(add)))
				c.Silent(do("STATUS"))
				c.Silent(do("DEL", prev(add)))
				c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
			},
		},
		{
			ID: "ENV-07", Level: SHOULD, Spec: "CNI 1.1.0, section 2 STATUS, GC",
			Claim: "STATUS and GC need no variable of an attachment, absent or empty",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				for _, verb := range []string{"STATUS", "GC"} {
					env := c.env(verb, Attachment{})
					bare := env.Without("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS")
					c.Silent(c.Exec(c.Subject.Binary, env, c.encode(n.Conf(valid(p.Eth0())))))
					c.Silent(c.Exec(c.Subject.Binary, bare, c.encode(n.Conf(valid(p.Eth0())))))
				}
				c.stillAttached(n, p, add, Newest)
			},
		},
	}
}

func invalidVariable(id, variable, value string) Case {
	return Case{
		ID: id, Level: MUST, Spec: specParameters,
		Claim: fmt.Sprintf("%s=%q is error 4 that names the variable, and nothing is changed", variable, value),
		Run: func(c *C) {
			n, p := c.Tiny(1), c.Pod()
			before := c.Snapshot(p.Netns)
			for _, verb := range []string{"ADD", "DEL"} {
				env := c.env(verb, p.Eth0()).With(variable, value)
				c.Names(c.Fails(c.Exec(c.Subject.Binary, env, c.encode(n.Conf())), 4), variable)
			}
			c.Unchanged("the pod", before, c.Snapshot(p.Netns))
			n.MustHaveFree(1)
		},
	}
}

func acceptedNameCases() []Case {
	accept := func(id, claim string, change func(a *Attachment)) Case {
		return Case{
			ID: id, Level: MUST, Spec: specParameters, Claim: claim,
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				a := p.Eth0()
				change(&a)
				add := c.Added(n.Add(a))
				c.Link(p.Netns, a.Ifname)
				c.Silent(n.Check(a, add))
				c.Silent(n.Del(a, prev(add)))
				c.Eventually("the interface is gone", func() bool { return !p.HasLink(a.Ifname) })
			},
		}
	}
	return []Case{
		accept("ENV-20", "An interface name of 15 bytes is accepted", func(a *Attachment) { a.Ifname = "a23456789012345" }),
		accept("ENV-21", "An interface name other than eth0 is accepted", func(a *Attachment) { a.Ifname = "net1" }),
		accept("ENV-22", "A container id of 64 hexadecimal digits is accepted", func(a *Attachment) {
			a.ContainerID = strings.Repeat("0123456789abcdef", 4)
		}),
		accept("ENV-23", "A container id of every allowed character is accepted", func(a *Attachment) {
			a.ContainerID = "0aZ_.-9"
		}),
	}
}

// configCases are about standard input.
func configCases() []Case {
	var cases []Case
	for i, stdin := range []string{"", "{", "not json", `"text"`, `[1]`, `{"cniVersion":"1.1.0","name":"x"`, `{"cniVersion":1,"name":"x"}`, `{"cniVersion":"1.1.0","name":7}`} {
		for _, verb := range []string{"ADD", "DEL", "CHECK", "STATUS", "GC"} {
			// DEL may do its work where the network can still be told.
			if verb == "DEL" && strings.Contains(stdin, `"name":"x"}`) {
				continue
			}
			cases = append(cases, Case{
				ID: fmt.Sprintf("CONFIG-01@%s-%d", verb, i), Level: SHOULD, Spec: specError,
				Claim: fmt.Sprintf("%s with %s on standard input is error 6", verb, asJSON(stdin)),
				Run: func(c *C) {
					c.Fails(c.Exec(c.Subject.Binary, c.env(verb, c.Pod().Eth0()), []byte(stdin)), 6)
				},
			})
		}
	}
	spoiled := []struct {
		claim string
		codes []int
		edit  func(Object)
	}{
		{"no name", []int{7}, drop("name")},
		{"an empty name", []int{7}, set("name", "")},
		{"a name with a slash", []int{7}, set("name", "a/b")},
		{"a name that begins with a dot", []int{7}, set("name", "..")},
		{"mtu as a string", []int{6, 7}, set("mtu", "big")},
		{"dns as a list", []int{6, 7}, set("dns", List{1})},
		{"ipam as a string", []int{6, 7}, set("ipam", "weft-ipam")},
		{"runtimeConfig as a number", []int{6, 7}, set("runtimeConfig", 3)},
		{"a negative mtu", []int{7, 2}, set("mtu", -1)},
	}
	for i, s := range spoiled {
		cases = append(cases, Case{
			ID: fmt.Sprintf("CONFIG-02@%d", i), Level: SHOULD, Spec: specError,
			Claim: fmt.Sprintf("ADD of a configuration with %s is error %v, and nothing is changed", s.claim, s.codes),
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				c.Fails(n.Add(p.Eth0(), s.edit), s.codes...)
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.MustHaveFree(1)
			},
		})
	}
	return slices.Concat(cases, toleratedKeyCases())
}

func toleratedKeyCases() []Case {
	return []Case{
		{
			ID: "CONFIG-03", Level: SHOULD, Spec: "CNI 1.1.0, section 1 Plugin configuration objects",
			Claim: "Unknown keys and the reserved keys of newer runtimes are tolerated by every verb",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				extra := func(o Object) {
					o["x.example/y"] = List{1, Object{"a": nil}}
					o["cni.dev/future"] = true
					o["args"] = Object{"cni": Object{"labels": List{Object{"key": "a", "value": "b"}}}, "other": 1}
					o["cniVersions"] = List{"0.4.0", "1.1.0"}
					o["disableCheck"], o["disableGC"] = "false", false
				}
				add := c.Added(n.Add(p.Eth0(), extra))
				c.Silent(n.Check(p.Eth0(), add, extra))
				c.Silent(n.Status(extra))
				c.Silent(n.GC(extra, valid(p.Eth0())))
				c.Silent(n.Del(p.Eth0(), extra, prev(add)))
				c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
			},
		},
		{
			ID: "CONFIG-05", Level: SHOULD, Spec: "CNI 1.1.0, section 1 Plugin configuration objects",
			Claim: "A configuration of 256 KiB, most of it for somebody else, is no problem",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				big := set("x.example/big", strings.Repeat("0123456789abcdef", 1<<14))
				add := c.Added(n.Add(p.Eth0(), big))
				c.Silent(n.Check(p.Eth0(), add, big))
				c.Silent(n.Del(p.Eth0(), big, prev(add)))
				c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
			},
		},
		{
			ID: "CONFIG-04", Level: MUST, Spec: "CNI 1.1.0, section 1, name",
			Claim: "Every character that the specification allows in a name is accepted",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				c.Added(n.Add(p.Eth0(), set("name", "0aZ_.-9")))
				c.Silent(n.Del(p.Eth0(), set("name", "0aZ_.-9")))
				c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
			},
		},
	}
}
