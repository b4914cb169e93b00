// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

const weftAgentSpec = "Weft, thick mode"

// agentCases are about the daemon: gone, hanging, restarted, twice.
func agentCases() []Case {
	cases := []Case{
		{
			ID: "AGENT-01", Level: MUST, Spec: specStatus,
			Claim: "STATUS is error 50 when the daemon is down, and succeeds when it is back",
			Run: func(c *C) {
				n := c.Net()
				c.Silent(n.Status())
				n.Stop()
				c.Fails(n.Status(), 50)
				n.Start()
				c.Silent(n.Status())
			},
		},
		{
			ID: "AGENT-02", Level: MUST, Spec: weftAgentSpec,
			Claim: "ADD is error 11 that names the socket when the daemon is down, and changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				n.Kill()
				c.Names(c.Fails(n.Add(p.Eth0()), 11), n.Socket())
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				n.Start()
				n.MustHaveFree(1)
			},
		},
		offlineDel("AGENT-03", "stopped", (*Network).Stop),
		offlineDel("AGENT-04", "killed", (*Network).Kill),
		{
			ID: "AGENT-05", Level: MUST, Spec: weftAgentSpec,
			Claim: "With offlineAdd, ADD and DEL work while the daemon is down, and it knows them when it is back",
			Run: func(c *C) {
				n, first, p := c.Tiny(2), c.Pod(), c.Pod()
				c.Added(n.Add(first.Eth0()))
				n.Kill()
				add := c.Added(n.Add(p.Eth0(), set("offlineAdd", true)))
				n.Start()
				c.Silent(n.Check(p.Eth0(), add))
				c.Fails(n.Add(c.Pod().Eth0()))
				c.Silent(n.Del(p.Eth0(), prev(add)))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "AGENT-06", Level: MUST, Spec: weftAgentSpec,
			Claim: "A restarted daemon knows its attachments: CHECK succeeds and no address is given twice",
			Run: func(c *C) {
				for _, end := range []func(*Network){(*Network).Stop, (*Network).Kill} {
					n, p := c.network, c.Pod()
					if n == nil {
						n = c.Tiny(3)
					}
					add := c.Added(n.Add(p.Eth0()))
					end(n)
					n.Start()
					c.stillAttached(n, p, add, Newest)
				}
				c.network.MustHaveFree(1)
			},
		},
		{
			ID: "AGENT-07", Level: MUST, Spec: weftAgentSpec,
			Claim: "A second daemon on the same state directory is refused with an error that names it",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				spec, err := c.Subject.Daemon(n)
				c.Must(err, "configure the daemon")
				var out lockedBuffer
				second := exec.Command(spec.Argv[0], spec.Argv[1:]...)
				second.Stdout, second.Stderr = &out, &out
				c.Must(c.Host.Do(second.Start), "start a second daemon")
				ended := make(chan error, 1)
				go func() { ended <- second.Wait() }()
				select {
				case err := <-ended:
					if err == nil || !strings.Contains(out.String(), n.StateDir) {
						c.Errorf("the second daemon ended with %v and said %q", err, out.String())
					}
				case <-time.After(5 * time.Second):
					_ = second.Process.Kill()
					<-ended
					c.Errorf("the second daemon runs: %s", out.String())
				}
				c.Added(n.Add(p.Eth0()))
			},
		},
		{
			ID: "AGENT-08", Level: MUST, Spec: weftAgentSpec,
			Claim: "The daemon's socket is for root alone: mode 0600",
			Run: func(c *C) {
				n := c.Net()
				info, err := os.Stat(n.Socket())
				if err != nil {
					c.Fatalf("the socket: %v", err)
				}
				if mode := info.Mode().Perm(); mode != 0o600 {
					c.Errorf("the mode is %o, want 600", mode)
				}
			},
		},
		hungAgent("AGENT-09", "ADD", 0),
		hungAgent("AGENT-10", "STATUS", 50),
		hungAgent("AGENT-11", "CHECK", 0),
		hungAgent("AGENT-12", "GC", 0),
		{
			ID: "AGENT-14", Level: MUST, Spec: weftAgentSpec,
			Claim: "DEL with a daemon that never answers ends within the timeout: served without it, or an error that names the socket",
			Run: func(c *C) {
				n := c.fakeAgent(func(net.Conn) {})
				call := n.Del(c.Pod().Eth0(), set("timeout", 1))
				if call.Code == 0 {
					c.Silent(call)
				} else {
					c.Names(c.Fails(call), n.Socket())
				}
				if call.Took > callLimit/2 {
					c.Errorf("it took %s with a timeout of 1 s", call.Took)
				}
				c.Fails(n.Add(c.Pod().Eth0(), set("timeout", 1)))
			},
		},
		{
			ID: "AGENT-13", Level: MUST, Spec: weftAgentSpec,
			Claim: "A daemon that answers garbage, or hangs up, is an error object and not a crash",
			Run: func(c *C) {
				for _, answer := range []string{"garbage\n", "", "{}\n", "HTTP/1.1 200 OK\r\n\r\n"} {
					n := c.fakeAgent(func(conn net.Conn) {
						_, _ = conn.Write([]byte(answer))
						_ = conn.Close()
					})
					c.Fails(n.Add(c.Pod().Eth0(), set("timeout", 2)))
				}
			},
		},
	}
	for i := range cases {
		cases[i].Needs |= FeatureAgent
	}
	return cases
}

func offlineDel(id, how string, end func(*Network)) Case {
	return Case{
		ID: id, Level: MUST, Spec: specDel,
		Claim: "DEL succeeds while the daemon is " + how + ": the interface goes and the address is free when it is back",
		Run: func(c *C) {
			n, p := c.Tiny(1), c.Pod()
			add := c.Added(n.Add(p.Eth0()))
			end(n)
			c.Silent(n.Del(p.Eth0(), prev(add)))
			c.Silent(n.Del(p.Eth0(), prev(add)))
			if p.HasLink("eth0") {
				c.Errorf("the interface is still there")
			}
			n.Start()
			n.MustHaveFree(1)
		},
	}
}

// hungAgent connects the plugin with a socket that takes everything and never
// answers.
func hungAgent(id, verb string, code int) Case {
	return Case{
		ID: id, Level: MUST, Spec: weftAgentSpec,
		Claim: verb + " with a daemon that never answers is an error within the timeout that names the socket",
		Run: func(c *C) {
			n := c.fakeAgent(func(net.Conn) {})
			a := c.Pod().Eth0()
			edits := []func(Object){set("timeout", 1), valid(a), set("prevResult", Object{
				"cniVersion": Newest, "interfaces": List{Object{"name": "eth0", "sandbox": a.Netns}},
				"ips": List{Object{"address": "10.42.0.9/20", "interface": 0}},
			})}
			if verb == "ADD" {
				edits = edits[:1]
			}
			call := n.Do(verb, a, n.Conf(edits...))
			f := c.Fails(call)
			if code != 0 && f.Code != code {
				c.Errorf("code is %d, want %d", f.Code, code)
			}
			c.Names(f, n.Socket())
			if call.Took > callLimit/2 {
				c.Errorf("it took %s with a timeout of 1 s", call.Took)
			}
		},
	}
}

// fakeAgent returns a network whose socket is served by a function.
func (c *C) fakeAgent(serve func(net.Conn)) *Network {
	n := &Network{Name: "weftnet", StateDir: c.Path("fake"), c: c}
	c.Must(os.MkdirAll(n.StateDir, 0o700), "make the state directory")
	_ = os.Remove(n.Socket())
	l, err := net.Listen("unix", n.Socket())
	c.Must(err, "listen")
	c.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.Cleanup(func() { _ = conn.Close() })
			serve(conn)
		}
	}()
	return n
}
