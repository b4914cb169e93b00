// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func machineCases() []Case {
	return []Case{
		{
			ID: "MACHINE-01", Level: SHOULD, Spec: "CNI 1.1.0, section 2 DEL: undo any modifications",
			Claim: "After ADD and DEL the host is as before: links, addresses, routes, rules, neighbours, nft ruleset",
			Run: func(c *C) {
				n, p := c.Dual(), c.Pod()
				host, pod := c.Snapshot(c.Host), c.Snapshot(p.Netns)
				add := c.Added(n.Add(p.Eth0(), set("ipMasq", true)))
				c.Silent(n.Check(p.Eth0(), add))
				c.Silent(n.Del(p.Eth0(), set("ipMasq", true), prev(add)))
				c.Until(settle, func() bool { return slices.Equal(host, c.Snapshot(c.Host)) })
				c.Unchanged("the host", host, c.Snapshot(c.Host))
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
			},
		},
		{
			ID: "MACHINE-02", Level: SHOULD, Spec: "CNI 1.1.0, section 2 DEL: undo any modifications", Serial: true,
			Claim: "ADD and DEL leave no file outside of the state directory",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				before := files(c, n)
				add := c.Added(n.Add(p.Eth0()))
				c.Silent(n.Check(p.Eth0(), add))
				c.Silent(n.Status())
				c.Silent(n.GC(valid(p.Eth0())))
				c.Silent(n.Del(p.Eth0(), prev(add)))
				c.Unchanged("the file system", before, files(c, n))
			},
		},
		{
			ID: "MACHINE-03", Level: SHOULD, Spec: "CNI 1.1.0, section 2 ADD: error", Serial: true,
			Claim: "A failed ADD leaves no file outside of the state directory either, and the host as before",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				c.dummy(p.Netns, "eth0")
				before, host := files(c, n), c.Snapshot(c.Host)
				c.Fails(n.Add(p.Eth0()))
				c.Unchanged("the file system", before, files(c, n))
				c.Unchanged("the host", host, c.Snapshot(c.Host))
			},
		},
		{
			ID: "MACHINE-04", Level: SHOULD, Spec: "Weft, ipMasq", Needs: FeatureWeft,
			Claim: "ipMasq is on by default and can be switched off: then there is no rule at all",
			Run: func(c *C) {
				n, p, q := c.Net(), c.Pod(), c.Pod()
				before, err := ruleset(c.Host)
				c.Must(err, "list the ruleset")
				off := c.Added(n.Add(p.Eth0(), set("ipMasq", false)))
				c.Unchanged("the ruleset", before, c.rulesetNow())
				c.Silent(n.Del(p.Eth0(), set("ipMasq", false), prev(off)))
				c.Added(n.Add(q.Eth0()))
				if !strings.Contains(strings.Join(c.rulesetNow(), "\n"), "masquerade") {
					c.Errorf("no masquerade rule by default: %v", c.rulesetNow())
				}
			},
		},
		{
			ID: "MACHINE-05", Level: MUST, Spec: specError,
			Claim: "Nothing but the answer is on standard output, whatever goes to standard error",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				add := c.Added(n.Add(p.Eth0()))
				c.Silent(n.Check(p.Eth0(), add))
				c.Fails(n.Add(p.Eth0()))
				c.Silent(n.Status())
				c.Silent(n.GC(valid(p.Eth0())))
				c.Silent(n.Del(p.Eth0(), prev(add)))
				c.Silent(n.Del(p.Eth0(), prev(add)))
			},
		},
		{
			ID: "MACHINE-09", Level: SHOULD, Spec: "CNI 1.1.0, section 5 Error: stderr can be used for logs",
			Claim: "With standard error closed or full, ADD, CHECK and DEL work all the same",
			Run: func(c *C) {
				for _, redirection := range []string{"2>&-", "2>/dev/full"} {
					n, p := c.network, c.Pod()
					if n == nil {
						n = c.Net()
					}
					do := func(verb string, edits ...func(Object)) *Call {
						return c.ExecRedirected(redirection, c.Subject.Binary, c.env(verb, p.Eth0()), c.encode(n.Conf(edits...)))
					}
					add := c.Added(do("ADD"))
					c.Silent(do("CHECK", prev(add)))
					c.Silent(do("DEL", prev(add)))
					c.Eventually("eth0 is gone", func() bool { return !p.HasLink("eth0") })
				}
			},
		},
		{
			ID: "MACHINE-06", Level: SHOULD, Spec: "Weft, logFile", Needs: FeatureWeft,
			Claim: "logFile gets one line per call, with verb, container and outcome",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				file := c.Path("weft.log")
				add := c.Added(n.Add(p.Eth0(), set("logFile", file)))
				c.Silent(n.Check(p.Eth0(), add, set("logFile", file)))
				c.Fails(n.Add(p.Eth0(), set("logFile", file)))
				c.Silent(n.Del(p.Eth0(), set("logFile", file), prev(add)))
				data, err := os.ReadFile(file)
				if err != nil {
					c.Fatalf("the log: %v", err)
				}
				lines := strings.Split(strings.TrimSpace(string(data)), "\n")
				if len(lines) != 4 {
					c.Fatalf("want 4 lines, found %d: %s", len(lines), data)
				}
				for i, verb := range []string{"ADD", "CHECK", "ADD", "DEL"} {
					if !strings.Contains(lines[i], verb) || !strings.Contains(lines[i], p.ID) {
						c.Errorf("line %d must name %s and %s: %s", i, verb, p.ID, lines[i])
					}
				}
			},
		},
		{
			ID: "MACHINE-07", Level: SHOULD, Spec: "Weft, sysctl", Needs: FeatureWeft,
			Claim: "sysctl sets what is allowed in the pod, and what is not allowed is an error that changes nothing",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				pod := c.Snapshot(p.Netns)
				c.Names(c.Fails(n.Add(p.Eth0(), set("sysctl", Object{"kernel.hostname": "x"})), 2, 7), "kernel.hostname")
				c.Unchanged("the pod", pod, c.Snapshot(p.Netns))
				c.Added(n.Add(p.Eth0(), set("sysctl", Object{"net.ipv4.conf.eth0.arp_filter": "1"}),
					set("sysctlAllow", List{"net.ipv4.conf.IFNAME.arp_filter"})))
				got, err := c.sysctl(p.Netns, "net/ipv4/conf/eth0/arp_filter")
				if err != nil || got != "1" {
					c.Errorf("arp_filter is %q (%v), want 1", got, err)
				}
			},
		},
		{
			ID: "MACHINE-08", Level: SHOULD, Spec: "Weft, mac", Needs: FeatureWeft,
			Claim: "mac of the configuration is the MAC of the pod's interface, from the beginning",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				c.Added(n.Add(p.Eth0(), set("mac", "02:00:5e:00:53:55")))
				if got := c.Link(p.Netns, "eth0").Attrs().HardwareAddr.String(); got != "02:00:5e:00:53:55" {
					c.Errorf("the MAC is %s", got)
				}
			},
		},
	}
}

func (c *C) rulesetNow() Snapshot {
	s, err := ruleset(c.Host)
	c.Must(err, "list the ruleset")
	return s
}

func (c *C) sysctl(n *Netns, key string) (value string, err error) {
	err = n.Do(func() error {
		data, err := os.ReadFile("/proc/sys/" + key)
		value = strings.TrimSpace(string(data))
		return err
	})
	return value, err
}

// files lists what exists in the places where programs leave things, without
// the state directory of the network.
func files(c *C, n *Network) Snapshot {
	var s Snapshot
	for _, root := range append([]string{os.TempDir()}, privateDirs...) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case os.IsNotExist(err):
				return nil
			case err != nil:
				return err
			case path == n.StateDir:
				return fs.SkipDir
			}
			s = append(s, fmt.Sprintf("%s %s", d.Type(), path))
			return nil
		})
		c.Must(err, "list files")
	}
	return s
}
