// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const specDelegate = "CNI 1.1.0, section 4 Delegated plugin execution procedure"

// delegateCases put another IPAM plugin under the subject.
func delegateCases() []Case {
	cases := slices.Concat(delegatedVerbs(), delegateVersions(), delegateFailures(), delegateReal())
	for i := range cases {
		cases[i].Needs |= FeatureDelegate
	}
	return cases
}

func delegatedVerbs() []Case {
	return []Case{
		{
			ID: "DELEGATE-01", Level: MUST, Spec: "CNI 1.1.0, section 4 Delegated Plugin protocol",
			Claim: "The delegate gets the same environment and the complete configuration, at ADD, CHECK and DEL",
			Run: func(c *C) {
				n, p, r := c.Net(), c.Pod(), c.Recorder()
				a := p.Eth0()
				a.Args = "IgnoreUnknown=1;K8S_POD_NAME=web"
				add := c.Added(r.Do(n, "ADD", a, set("x.example/extra", List{1})))
				check := c.Silent(r.Do(n, "CHECK", a, set("x.example/extra", List{1}), prev(add)))
				del := c.Silent(r.Do(n, "DEL", a, set("x.example/extra", List{1}), prev(add)))
				got := r.Calls()
				if r.Verbs() != "ADD CHECK DEL" {
					c.Fatalf("the delegate was called with %q, want ADD CHECK DEL", r.Verbs())
				}
				for i, call := range []*Call{add, check, del} {
					r.sameConfig(call, got[i])
					for key, value := range call.Env {
						if got[i].Env[key] != value {
							c.Errorf("%s: the delegate has %s=%q, want %q", got[i].Verb, key, got[i].Env[key], value)
						}
					}
				}
			},
		},
		{
			ID: "DELEGATE-02", Level: MUST, Spec: specDelegate,
			Claim: "What the delegate grants is applied and reported: address, gateway, routes, dns",
			Run: func(c *C) {
				n, p, r := c.Net(), c.Pod(), c.Recorder()
				add := r.Do(n, "ADD", p.Eth0())
				got := c.Result(add)
				if addressesOf(got) != "10.55.0.5" || got.IPs[0].Gateway.String() != "10.55.0.1" || join(got.DNS.Nameservers) != "10.55.0.53" {
					c.Errorf("the result is %s", oneLine(add.Stdout))
				}
				if !c.HasAddr(p.Netns, "eth0", got.IPs[0].Address.Addr()) {
					c.Errorf("the address is not on eth0")
				}
			},
		},
		{
			ID: "DELEGATE-03", Level: SHOULD, Spec: specDelegate,
			Claim: "The delegate's stderr appears on the plugin's stderr",
			Run: func(c *C) {
				n, p, r := c.Net(), c.Pod(), c.Recorder()
				for _, verb := range []string{"ADD", "DEL"} {
					call := r.Do(n, verb, p.Eth0())
					if !strings.Contains(string(call.Stderr), "recorder was here: "+verb) {
						c.Errorf("%s: stderr is %q", verb, call.Stderr)
					}
				}
			},
		},
		forwarded("DELEGATE-04", MUST, "STATUS", "STATUS is forwarded to the delegate, and its error is an error"),
		forwarded("DELEGATE-05", MUST, "GC", "GC is forwarded to the delegate, and its error is an error"),
		forwarded("DELEGATE-06", MUST, "CHECK", "CHECK is forwarded to the delegate, and its error is an error"),
		forwarded("DELEGATE-07", SHOULD, "DEL", "DEL is forwarded to the delegate, and its error is an error"),
		{
			ID: "DELEGATE-08", Level: MUST, Spec: specDel,
			Claim: "DEL reaches the delegate without a namespace, and for an attachment that is unknown",
			Run: func(c *C) {
				n, p, r := c.Net(), c.Pod(), c.Recorder()
				c.Added(r.Do(n, "ADD", p.Eth0()))
				p.Delete()
				a := p.Eth0()
				a.Netns = ""
				c.Silent(r.Do(n, "DEL", a))
				c.Silent(r.Do(n, "DEL", Attachment{ContainerID: "never-seen", Ifname: "eth0"}))
				if r.Verbs() != "ADD DEL DEL" {
					c.Errorf("the delegate was called with %q, want ADD DEL DEL", r.Verbs())
				}
			},
		},
	}
}

// grantOf is one granted address in the shape of a version.
func grantOf(version string) string {
	switch version {
	case "0.1.0", "0.2.0":
		return `{"cniVersion":"` + version + `","ip4":{"ip":"10.55.0.5/24","gateway":"10.55.0.1","routes":[{"dst":"0.0.0.0/0"}]}}`
	case "0.3.0", "0.3.1", "0.4.0":
		return `{"cniVersion":"` + version + `","ips":[{"version":"4","address":"10.55.0.5/24","gateway":"10.55.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}`
	}
	return `{"cniVersion":"` + version + `","ips":[{"address":"10.55.0.5/24","gateway":"10.55.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}`
}

func delegateVersions() (cases []Case) {
	for _, v := range Versions {
		cases = append(cases, Case{
			ID: "DELEGATE-09@" + v, Level: MUST, Spec: "CNI 1.1.0, section 4 Delegated Plugin protocol",
			Claim: "The delegate's answer is understood in the version of the request",
			Run: func(c *C) {
				n, p, r := c.Net(), c.Pod(), c.Recorder()
				r.Answer("ADD", grantOf(v), 0)
				c.Shaped(r.Do(n, "ADD", p.Eth0(), set("cniVersion", v)), v)
				if !c.HasAddr(p.Netns, "eth0", netip.MustParseAddr("10.55.0.5")) {
					c.Errorf("the address is not on eth0")
				}
			},
		})
	}
	return cases
}

func forwarded(id string, level Level, verb, claim string) Case {
	return Case{
		ID: id, Level: level, Spec: specDelegate, Claim: claim,
		Run: func(c *C) {
			n, p, r := c.Net(), c.Pod(), c.Recorder()
			add := c.Added(r.Do(n, "ADD", p.Eth0()))
			a, edits := p.Eth0(), []func(Object){prev(add)}
			if verb == "STATUS" || verb == "GC" {
				a, edits = Attachment{}, []func(Object){valid(p.Eth0())}
			}
			if verb != "DEL" {
				c.Silent(r.Do(n, verb, a, edits...))
			}
			r.Answer(verb, `{"cniVersion":"1.1.0","code":142,"msg":"the delegate objects"}`, 1)
			f := c.Fails(r.Do(n, verb, a, edits...))
			c.Names(f, "the delegate objects")
			if !strings.HasSuffix(r.Verbs(), verb) {
				c.Errorf("the delegate was called with %q, want %s at the end", r.Verbs(), verb)
			}
		},
	}
}

func delegateFailures() []Case {
	cases := []Case{
		{
			ID: "DELEGATE-10", Level: MUST, Spec: specDelegate,
			Claim: "A delegate that is not in CNI_PATH is an error that names it, and nothing is changed",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				c.Names(c.Fails(n.Add(p.Eth0(), set("ipam", Object{"type": "no-such-ipam"}))), "no-such-ipam")
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
			},
		},
		{
			ID: "DELEGATE-11", Level: MUST, Spec: "CNI 1.1.0, section 1 ipam.type: no characters disallowed in file paths",
			Claim: "A delegate's name with a slash is an error and executes nothing",
			Run: func(c *C) {
				n, p, r := c.Net(), c.Pod(), c.Recorder()
				r.Section = with(r.Section, "type", "../"+filepath.Base(r.dir)+"/recorder")
				c.Fails(r.Do(n, "ADD", p.Eth0()))
				if r.Verbs() != "" {
					c.Errorf("the delegate was executed: %s", r.Verbs())
				}
			},
		},
	}
	answers := []struct{ name, stdout string }{
		{"refuses", `{"cniVersion":"1.1.0","code":142,"msg":"the delegate objects"}`},
		{"dies silently", ``},
	}
	for i, a := range answers {
		cases = append(cases, failedDelegate(fmt.Sprintf("DELEGATE-12@%d", i), "A delegate that "+a.name+" at ADD is called with DEL before the error is returned",
			func(r *recorder) { r.Answer("ADD", a.stdout, 1) }))
	}
	later := []struct{ name, stdout string }{
		{"prints garbage", `garbage`},
		{"grants no address", `{"cniVersion":"1.1.0","ips":[]}`},
		{"grants a route that cannot be set", `{"cniVersion":"1.1.0","ips":[{"address":"10.55.0.5/24","gateway":"10.55.0.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"203.0.113.1"}]}`},
		{"grants an address that is none", `{"cniVersion":"1.1.0","ips":[{"address":"10.55.0.500/24"}]}`},
	}
	for i, a := range later {
		cases = append(cases, failedDelegate(fmt.Sprintf("DELEGATE-13@%d", i), "When ADD fails because the delegate "+a.name+", it is called with DEL and nothing is changed",
			func(r *recorder) { r.Answer("ADD", a.stdout, 0) }))
	}
	return append(cases,
		Case{
			ID: "DELEGATE-14", Level: MUST, Spec: "CNI 1.1.0, section 2 ADD; section 4",
			Claim: "When ADD fails because the interface exists, what a delegate granted is given back",
			Run: func(c *C) {
				n, p, r := c.Net(), c.Pod(), c.Recorder()
				c.dummy(p.Netns, "eth0")
				c.Fails(r.Do(n, "ADD", p.Eth0()))
				if got := r.Verbs(); got != "" && got != "ADD DEL" {
					c.Errorf("the delegate was called with %q, want nothing or ADD DEL", got)
				}
			},
		},
		Case{
			ID: "DELEGATE-15", Level: SHOULD, Spec: "Weft, timeout", Needs: FeatureWeft,
			Claim: "A delegate that hangs is an error within the timeout of the configuration",
			Run: func(c *C) {
				n, p, r := c.Net(), c.Pod(), c.Recorder()
				r.AnswerScript("ADD", "exec sleep 60\n")
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				call := r.Do(n, "ADD", p.Eth0(), set("timeout", 1))
				c.Names(c.Fails(call), "recorder")
				if call.Took > callLimit/2 {
					c.Errorf("the error took %s with a timeout of 1 s", call.Took)
				}
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
			},
		})
}

func failedDelegate(id, claim string, prepare func(r *recorder)) Case {
	return Case{
		ID: id, Level: SHOULD, Spec: specDelegate, Claim: claim,
		Run: func(c *C) {
			n, p, r := c.Net(), c.Pod(), c.Recorder()
			prepare(r)
			host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
			c.Fails(r.Do(n, "ADD", p.Eth0()))
			if got := r.Verbs(); !strings.HasPrefix(got, "ADD DEL") {
				c.Errorf("the delegate was called with %q, want ADD DEL", got)
			}
			c.Unchanged("the host", host, c.Snapshot(c.Host))
			c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
		},
	}
}

// delegateReal uses the reference IPAM plugins.
func delegateReal() []Case {
	return []Case{
		{
			ID: "DELEGATE-20", Level: MUST, Spec: specDelegate,
			Claim: "With host-local as IPAM: ADD, CHECK, DEL; the address is reserved and freed",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				data := c.Path("host-local")
				ipam := set("ipam", Object{"type": "host-local", "dataDir": data, "ranges": List{List{Object{"subnet": "10.66.0.0/24"}}}, "routes": List{default4}})
				add := n.Add(p.Eth0(), ipam)
				addr := c.Addr(add).String()
				file := filepath.Join(data, n.Name, addr)
				if _, err := os.Stat(file); err != nil {
					c.Errorf("host-local has no reservation: %v", err)
				}
				c.Silent(n.Check(p.Eth0(), add, ipam))
				c.Silent(n.Del(p.Eth0(), ipam, prev(add)))
				if _, err := os.Stat(file); err == nil {
					c.Errorf("host-local still has the reservation of %s", addr)
				}
			},
		},
		{
			ID: "DELEGATE-21", Level: MUST, Spec: specDelegate,
			Claim: "With static as IPAM: the configured address and routes are applied, CHECK and DEL succeed",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				ipam := set("ipam", Object{
					"type":      "static",
					"addresses": List{Object{"address": "10.9.0.5/24", "gateway": "10.9.0.1"}},
					"routes":    List{Object{"dst": "0.0.0.0/0"}, Object{"dst": "203.0.113.0/24", "gw": "10.9.0.1"}},
					"dns":       Object{"nameservers": List{"10.9.0.53"}},
				})
				add := n.Add(p.Eth0(), ipam)
				r := c.Result(add)
				if addressesOf(r) != "10.9.0.5" || join(r.DNS.Nameservers) != "10.9.0.53" || len(r.Routes) != 2 {
					c.Errorf("the result is %s", oneLine(add.Stdout))
				}
				c.Silent(n.Check(p.Eth0(), add, ipam))
				c.Silent(n.Del(p.Eth0(), ipam, prev(add)))
				if p.HasLink("eth0") {
					c.Errorf("DEL left eth0")
				}
			},
		},
	}
}
