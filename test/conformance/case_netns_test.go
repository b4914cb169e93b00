// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

const (
	specAdd = "CNI 1.1.0, section 2 ADD"
	specDel = "CNI 1.1.0, section 2 DEL"
	weftNet = "Weft, bad input: CNI_NETNS"
)

// notNamespaces are paths that do not lead to a network namespace.
var notNamespaces = []struct {
	name string
	make func(c *C, path string) string
}{
	{"missing", func(c *C, path string) string { return path }},
	{"missing-directory", func(c *C, path string) string { return path + "/deeper" }},
	{"file", func(c *C, path string) string {
		c.Must(os.WriteFile(path, []byte("x"), 0o600), "write a file")
		return path
	}},
	{"directory", func(c *C, path string) string {
		c.Must(os.Mkdir(path, 0o700), "make a directory")
		return path
	}},
	{"socket", func(c *C, path string) string {
		l, err := net.Listen("unix", path)
		c.Must(err, "listen")
		c.Cleanup(func() { _ = l.Close() })
		return path
	}},
	{"fifo", func(c *C, path string) string {
		c.Must(syscall.Mkfifo(path, 0o600), "make a fifo")
		return path
	}},
	{"mount-namespace", func(*C, string) string { return "/proc/self/ns/mnt" }},
	{"user-namespace", func(*C, string) string { return "/proc/1/ns/user" }},
	{"device", func(*C, string) string { return "/dev/null" }},
	{"dangling-link", func(c *C, path string) string {
		c.Must(os.Symlink("/nowhere/at/all", path), "make a link")
		return path
	}},
}

func netnsCases() []Case {
	var cases []Case
	for _, kind := range notNamespaces {
		cases = append(cases,
			Case{
				ID: "NETNS-01@" + kind.name, Level: MUST, Spec: weftNet,
				Claim: "ADD into a path that is not a network namespace (" + kind.name + ") is error 8 and changes nothing",
				Run: func(c *C) {
					n, p := c.Tiny(1), c.Pod()
					a := p.Eth0()
					a.Netns = kind.make(c, c.Path("not-a-namespace"))
					before := c.Snapshot(c.Host)
					c.Names(c.Fails(n.Add(a), 8), a.Netns)
					c.Unchanged("the host", before, c.Snapshot(c.Host))
					n.MustHaveFree(1)
				},
			},
			Case{
				ID: "NETNS-02@" + kind.name, Level: MUST, Spec: specDel,
				Claim: "DEL succeeds and frees the address when CNI_NETNS has become something else (" + kind.name + ")",
				Run: func(c *C) {
					n, p := c.Tiny(1), c.Pod()
					add := c.Added(n.Add(p.Eth0()))
					p.Delete()
					a := p.Eth0()
					a.Netns = kind.make(c, c.Path("not-a-namespace"))
					c.Silent(n.Del(a, prev(add)))
					n.MustHaveFree(1)
				},
			},
			Case{
				ID: "NETNS-03@" + kind.name, Level: SHOULD, Spec: "CNI 1.1.0, section 2 CHECK",
				Claim: "CHECK is an error when CNI_NETNS is not a network namespace (" + kind.name + ")",
				Run: func(c *C) {
					n, p := c.Net(), c.Pod()
					add := c.Added(n.Add(p.Eth0()))
					c.Silent(n.Check(p.Eth0(), add))
					a := p.Eth0()
					a.Netns = kind.make(c, c.Path("not-a-namespace"))
					c.Fails(n.Check(a, add))
				},
			})
	}
	return slices.Concat(cases, hostNetnsCases())
}

// hostNetnsCases use the plugin's own namespace as the sandbox.
func hostNetnsCases() []Case {
	var cases []Case
	for name, path := range map[string]func(c *C) string{
		"bound": func(c *C) string { return c.Host.Path },
		"proc":  func(*C) string { return "/proc/self/ns/net" },
	} {
		cases = append(cases,
			Case{
				ID: "NETNS-04@" + name, Level: MUST, Spec: weftNet,
				Claim: "ADD into the plugin's own namespace is error 8, before anything is touched",
				Run: func(c *C) {
					n, p := c.Tiny(1), c.Pod()
					a := p.Eth0()
					a.Netns = path(c)
					before := c.Snapshot(c.Host)
					c.Fails(n.Add(a), 8)
					c.Unchanged("the host", before, c.Snapshot(c.Host))
					n.MustHaveFree(1)
				},
			},
			Case{
				ID: "NETNS-05@" + name, Level: MUST, Spec: specDel,
				Claim: "DEL with the plugin's own namespace frees the address and touches nothing of the host's",
				Run: func(c *C) {
					n, p := c.Tiny(1), c.Pod()
					before := c.Snapshot(c.Host)
					c.dummy(c.Host, "eth0")
					add := c.Added(n.Add(p.Eth0()))
					a := p.Eth0()
					a.Netns = path(c)
					c.Silent(n.Del(a, prev(add)))
					if !c.Host.HasLink("eth0") {
						c.Fatalf("DEL removed the host's own eth0")
					}
					c.Must(c.Host.LinkDel(c.Link(c.Host, "eth0")), "remove eth0")
					if c.Subject.Has(FeatureWeft) {
						c.Eventually("the host is as before", func() bool { return slices.Equal(before, c.Snapshot(c.Host)) })
					}
					n.MustHaveFree(1)
				},
			})
	}
	slices.SortFunc(cases, func(a, b Case) int { return strings.Compare(a.ID, b.ID) })
	return cases
}

// dummy adds an interface that is nobody's business. It is a bridge without
// ports, because not every kernel has the dummy driver.
func (c *C) dummy(n *Netns, name string) netlink.Link {
	l := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	c.Must(n.LinkAdd(l), "add an interface")
	return l
}
