// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
)

const (
	specVersion = "CNI 1.1.0, section 2 VERSION"
	specResult  = "CNI 1.1.0, section 5 ADD Success"
	specError   = "CNI 1.1.0, section 5 Error"
)

func versionCases() []Case {
	return slices.Concat([]Case{
		{
			ID: "VERSION-01", Level: MUST, Spec: specVersion,
			Claim: "VERSION lists every released version that the plugin supports, and needs nothing but CNI_COMMAND",
			Run: func(c *C) {
				reply := c.version(c.Exec(c.Subject.Binary, Env{"CNI_COMMAND": "VERSION"}, []byte(`{"cniVersion":"1.1.0"}`)))
				if !slices.Equal(slices.Sorted(slices.Values(reply.SupportedVersions)), Versions) {
					c.Errorf("supportedVersions is %v, want %v", reply.SupportedVersions, Versions)
				}
			},
		},
		{
			ID: "VERSION-02", Level: SHOULD, Spec: specVersion,
			Claim: "VERSION answers with empty standard input",
			Run: func(c *C) {
				c.version(c.Exec(c.Subject.Binary, Env{"CNI_COMMAND": "VERSION"}, nil))
			},
		},
		{
			ID: "VERSION-03", Level: SHOULD, Spec: specVersion,
			Claim: "VERSION answers with standard input closed",
			Run: func(c *C) {
				c.version(c.ExecRedirected("<&-", c.Subject.Binary, Env{"CNI_COMMAND": "VERSION"}, nil))
			},
		},
		{
			ID: "VERSION-04", Level: SHOULD, Spec: specVersion,
			Claim: "VERSION answers a runtime that speaks a version which the plugin does not know",
			Run: func(c *C) {
				reply := c.version(c.Exec(c.Subject.Binary, Env{"CNI_COMMAND": "VERSION"}, []byte(`{"cniVersion":"9.9.9"}`)))
				if !slices.Contains(reply.SupportedVersions, Newest) {
					c.Errorf("supportedVersions is %v, want %s among them", reply.SupportedVersions, Newest)
				}
			},
		},
		{
			ID: "VERSION-05", Level: SHOULD, Spec: specVersion,
			Claim: "VERSION ignores the variables of attachments, even absurd ones",
			Run: func(c *C) {
				env := c.env("VERSION", Attachment{ContainerID: "/", Netns: "/nowhere", Ifname: "..", Args: "x"})
				c.version(c.Exec(c.Subject.Binary, env, []byte(`{"cniVersion":"1.0.0"}`)))
			},
		},
		{
			ID: "VERSION-06", Level: MUST, Spec: specVersion,
			Claim: "The IPAM plugin answers VERSION as well",
			Run: func(c *C) {
				reply := c.version(c.Exec(c.Subject.IPAM, Env{"CNI_COMMAND": "VERSION"}, []byte(`{"cniVersion":"1.1.0"}`)))
				if !slices.Contains(reply.SupportedVersions, Newest) {
					c.Errorf("supportedVersions is %v, want %s among them", reply.SupportedVersions, Newest)
				}
			},
		},
	}, versionEchoCases(), unsupportedCases())
}

// versionReply is the answer to VERSION.
type versionReply struct {
	CNIVersion        string   `json:"cniVersion"`
	SupportedVersions []string `json:"supportedVersions"`
}

func (c *C) version(call *Call) versionReply {
	if call.Code != 0 {
		c.Fatalf("VERSION: exit code %d: %s", call.Code, oneLine(call.Stdout))
	}
	var r versionReply
	if err := decodeOne(call.Stdout, &r); err != nil {
		c.Fatalf("VERSION: %v", err)
	}
	if r.CNIVersion == "" || len(r.SupportedVersions) == 0 {
		c.Errorf("VERSION: cniVersion and supportedVersions are required: %s", oneLine(call.Stdout))
	}
	return r
}

func versionEchoCases() (cases []Case) {
	for _, v := range Versions {
		cases = append(cases, Case{
			ID: "VERSION-07@" + v, Level: MUST, Spec: "CNI 1.1.0, section 5 VERSION Success",
			Claim: "The cniVersion of the answer to VERSION is that of the input",
			Run: func(c *C) {
				r := c.version(c.Exec(c.Subject.Binary, Env{"CNI_COMMAND": "VERSION"}, []byte(`{"cniVersion":"`+v+`"}`)))
				if r.CNIVersion != v {
					c.Errorf("cniVersion is %q, want %q", r.CNIVersion, v)
				}
			},
		})
	}
	return cases
}

// unsupportedCases are configurations of versions that do not exist, and verbs
// that do not exist in a version.
func unsupportedCases() (cases []Case) {
	for i, v := range []string{"2.0.0", "1.2.0", "0.0.1", "0.9.0"} {
		for _, verb := range []string{"ADD", "DEL", "CHECK", "STATUS", "GC"} {
			cases = append(cases, Case{
				ID: fmt.Sprintf("VERSION-1%d@%s", i, verb), Level: MUST, Spec: specError,
				Claim: fmt.Sprintf("%s with cniVersion %s, which the plugin does not support, is error 1", verb, v),
				Run: func(c *C) {
					n, p := c.Net(), c.Pod()
					before := c.Snapshot(p.Netns)
					c.Fails(n.Do(verb, p.Eth0(), n.ConfOf(v, set("prevResult", Object{"cniVersion": v}))), 1)
					c.Unchanged("the pod", before, c.Snapshot(p.Netns))
				},
			})
		}
	}
	return cases
}

// shapeCases try every verb with every version.
func shapeCases() (cases []Case) {
	for _, v := range Versions {
		cases = append(cases,
			Case{
				ID: "ADD-01@" + v, Level: MUST, Spec: specResult,
				Claim: "ADD answers in the version of the request, with the keys of that version and no others",
				Run:   func(c *C) { c.Shaped(c.Net().Do("ADD", c.Pod().Eth0(), c.confOf(v)), v) },
			},
			Case{
				ID: "ADD-02@" + v, Level: MUST, Spec: specResult,
				Claim: "ADD of both families answers with the keys of the version and both addresses",
				Run:   func(c *C) { dualShape(c, v) },
			},
			Case{
				ID: "DEL-01@" + v, Level: MUST, Spec: "CNI 1.1.0, section 2 DEL",
				Claim: "DEL prints nothing, removes the interface and frees the address, in every version",
				Run:   func(c *C) { delShape(c, v) },
			},
			verbSince("CHECK-01", "CHECK", v, "0.4.0"),
			verbSince("STATUS-01", "STATUS", v, "1.1.0"),
			verbSince("GC-01", "GC", v, "1.1.0"),
		)
	}
	return append(cases, Case{
		ID: "ADD-03", Level: SHOULD, Spec: "CNI 0.2.0, section Network Configuration",
		Claim: "A configuration without cniVersion is taken for the oldest, and answered in its shape",
		Run: func(c *C) {
			call := c.Net().Do("ADD", c.Pod().Eth0(), c.confOf(""))
			c.Added(call)
			for _, fault := range resultShape("0.2.0").check("result", call.Stdout) {
				c.Errorf("%s", fault)
			}
		},
	})
}

// confOf is the configuration of the network that the case set up last.
func (c *C) confOf(version string) Object { return c.network.ConfOf(version) }

func dualShape(c *C, v string) {
	n := c.Dual()
	call := n.Do("ADD", c.Pod().Eth0(), n.ConfOf(v))
	c.Shaped(call, v)
	if v == "0.1.0" || v == "0.2.0" {
		var r struct{ IP4, IP6 *struct{ IP string } }
		c.Must(decodeOne(call.Stdout, &r), "decode the result")
		if r.IP4 == nil || r.IP6 == nil {
			c.Errorf("want ip4 and ip6: %s", oneLine(call.Stdout))
		}
		return
	}
	r := c.Result(call)
	if len(r.IPs) != 2 {
		c.Fatalf("want two addresses: %s", oneLine(call.Stdout))
	}
	for _, ip := range r.IPs {
		want := map[bool]string{true: "4", false: "6"}[ip.Address.Addr().Is4()]
		if ip.Version != "" && ip.Version != want {
			c.Errorf("address %s has version %q, want %q", ip.Address, ip.Version, want)
		}
	}
}

func delShape(c *C, v string) {
	n, p := c.Tiny(1), c.Pod()
	add := c.Added(n.Do("ADD", p.Eth0(), n.ConfOf(v)))
	c.Silent(n.Do("DEL", p.Eth0(), n.ConfOf(v, prev(add))))
	c.Eventually("the interface is gone", func() bool { return !p.HasLink("eth0") })
	n.MustHaveFree(1)
}

// verbSince is a verb at a version: it works from the version that introduced
// it, and is refused before.
func verbSince(id, verb, v, since string) Case {
	k := Case{
		ID: id + "@" + v, Level: MUST, Spec: "CNI 1.1.0, section 2 " + verb,
		Claim: verb + " prints nothing on success",
		Run: func(c *C) {
			n, p := c.Net(), c.Pod()
			add := c.Added(n.Do("ADD", p.Eth0(), n.ConfOf(v)))
			edit := prev(add)
			if verb != "CHECK" {
				edit = valid(p.Eth0())
			}
			c.Silent(n.Do(verb, p.Eth0(), n.ConfOf(v, edit)))
			c.stillAttached(n, p, add, v)
		},
	}
	if slices.Index(Versions, v) < slices.Index(Versions, since) {
		k.Level = SHOULD
		k.Claim = verb + " with a configuration older than the verb is error 1"
		k.Run = func(c *C) {
			n, p := c.Net(), c.Pod()
			add := c.Added(n.Do("ADD", p.Eth0(), n.ConfOf(v)))
			c.Fails(n.Do(verb, p.Eth0(), n.ConfOf(v, prev(add))), 1)
		}
	}
	return k
}
