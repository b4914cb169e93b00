// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
)

// Object is a JSON object.
type Object map[string]any

// List is a JSON array.
type List []any

// Newest is the version that cases use unless they are about versions.
const Newest = "1.1.0"

// Versions are all released versions of the specification.
var Versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Network is one network of a case, with its daemon where the subject has one.
type Network struct {
	Name     string
	StateDir string
	Ranges   List // list of lists of ranges, in the words of host-local
	Routes   List

	c      *C
	daemon *daemon
}

// Pools of addresses. Pools of few addresses show what is free: who gets one
// when others are refused.
var (
	pool4    = Object{"subnet": "10.42.0.0/20"}
	pool6    = Object{"subnet": "fd00:42::/64"}
	default4 = Object{"dst": "0.0.0.0/0"}
	default6 = Object{"dst": "::/0"}
)

// few is a pool of exactly count addresses, 1 to 9: 10.42.0.11 and up.
func few(count int) Object {
	last := "10.42.0.1" + string(rune('0'+count))
	return Object{"subnet": "10.42.0.0/20", "rangeStart": "10.42.0.11", "rangeEnd": last}
}

// Net sets up a network with one IPv4 pool.
func (c *C) Net() *Network { return c.NetOf(List{List{pool4}}, List{default4}) }

// Tiny sets up a network with count IPv4 addresses in all.
func (c *C) Tiny(count int) *Network { return c.NetOf(List{List{few(count)}}, List{default4}) }

// Dual sets up a network with a pool of each family.
func (c *C) Dual() *Network {
	return c.NetOf(List{List{pool4}, List{pool6}}, List{default4, default6})
}

// NetOf sets up a network of any ranges and routes and starts its daemon.
func (c *C) NetOf(ranges, routes List) *Network {
	n := &Network{Name: "weftnet", StateDir: c.Path("state"), Ranges: ranges, Routes: routes, c: c}
	c.network = n
	n.Start()
	return n
}

// Socket is where the network's daemon listens.
func (n *Network) Socket() string { return filepath.Join(n.StateDir, "agent.sock") }

// ipam is the section for an IPAM plugin. The two differ only in where they
// keep their state.
func (n *Network) ipam(plugin string) Object {
	section := Object{"type": plugin, "ranges": n.Ranges, "routes": n.Routes}
	if plugin == "host-local" {
		section["dataDir"] = filepath.Join(n.StateDir, "ipam")
	} else {
		section["stateDir"] = n.StateDir
	}
	return section
}

// Conf returns the configuration that a runtime would pass.
func (n *Network) Conf(edits ...func(Object)) Object { return n.ConfOf(Newest, edits...) }

// ConfOf is Conf for a version of the specification; "" leaves the key out.
func (n *Network) ConfOf(version string, edits ...func(Object)) Object {
	conf := maps.Clone(n.c.Subject.Config(n))
	conf["name"] = n.Name
	if version != "" {
		conf["cniVersion"] = version
	}
	for _, edit := range edits {
		edit(conf)
	}
	return conf
}

// set returns an edit that sets one key.
func set(key string, value any) func(Object) { return func(o Object) { o[key] = value } }

// drop returns an edit that removes one key.
func drop(key string) func(Object) { return func(o Object) { delete(o, key) } }

// prev returns an edit that sets prevResult to what ADD printed.
func prev(add *Call) func(Object) {
	return func(o Object) { o["prevResult"] = json.RawMessage(add.Stdout) }
}

// capability returns an edit that declares and supplies a capability.
func capability(key string, value any) func(Object) {
	return func(o Object) {
		o["capabilities"] = Object{key: true}
		o["runtimeConfig"] = Object{key: value}
	}
}

// Do executes a verb for an attachment.
func (n *Network) Do(verb string, a Attachment, conf Object) *Call {
	return n.c.Exec(n.c.Subject.Binary, n.c.env(verb, a), n.c.encode(conf))
}

// Add, Del, Check execute a verb with the plain configuration.
func (n *Network) Add(a Attachment, edits ...func(Object)) *Call {
	return n.Do("ADD", a, n.Conf(edits...))
}

func (n *Network) Del(a Attachment, edits ...func(Object)) *Call {
	return n.Do("DEL", a, n.Conf(edits...))
}

func (n *Network) Check(a Attachment, add *Call, edits ...func(Object)) *Call {
	return n.Do("CHECK", a, n.Conf(append([]func(Object){prev(add)}, edits...)...))
}

// Status and GC have no attachment; libcni sets its variables to nothing.
func (n *Network) Status(edits ...func(Object)) *Call {
	return n.Do("STATUS", Attachment{}, n.Conf(edits...))
}

func (n *Network) GC(edits ...func(Object)) *Call {
	return n.Do("GC", Attachment{}, n.Conf(edits...))
}

// valid returns an edit that lists the attachments which are valid, by the
// specification's key.
func valid(attachments ...Attachment) func(Object) {
	return set("cni.dev/valid-attachments", attachmentList(attachments...))
}

func attachmentList(attachments ...Attachment) List {
	list := List{}
	for _, a := range attachments {
		list = append(list, Object{"containerID": a.ContainerID, "ifname": a.Ifname})
	}
	return list
}

func (c *C) encode(conf Object) []byte {
	data, err := json.Marshal(conf)
	c.Must(err, "encode the configuration")
	return data
}

// LoseState removes everything that the plugin remembers of the network, as a
// disk failure or an operator would.
func (n *Network) LoseState() {
	n.Stop()
	n.c.Must(os.RemoveAll(n.StateDir), "remove the state")
	n.Start()
}

// MustHaveFree expects exactly count addresses of the network to be free: that
// many pods get one, and the next is refused. It uses them up.
func (n *Network) MustHaveFree(count int) {
	c := n.c
	for i := range count {
		call := n.addPatiently(c.Pod().Eth0())
		if call.Code != 0 {
			c.Errorf("want %d free addresses, found %d: %s", count, i, oneLine(call.Stdout))
			return
		}
	}
	if call := n.Add(c.Pod().Eth0()); call.Code == 0 {
		c.Errorf("want %d free addresses, found more: %s", count, oneLine(call.Stdout))
	}
}

// addPatiently repeats an ADD that is told to try again: a daemon may free an
// address shortly after DEL has returned, together with the interface.
func (n *Network) addPatiently(a Attachment) (call *Call) {
	n.c.Until(settle, func() bool {
		call = n.Add(a)
		f, err := parseFailure(call.Stdout)
		return call.Code == 0 || n.daemon == nil || err != nil || f.Code != 11
	})
	return call
}

// stillAttached expects an attachment to live: interface, address and, where
// the version has CHECK, the plugin's own judgement.
func (c *C) stillAttached(n *Network, p *Pod, add *Call, version string) {
	if !p.HasLink("eth0") {
		c.Fatalf("the interface eth0 is gone from the pod")
	}
	if version == Newest {
		if addr := c.Addr(add); !c.HasAddr(p.Netns, "eth0", addr) {
			c.Errorf("the address %s is gone from the pod", addr)
		}
		c.Silent(n.Check(p.Eth0(), add))
	}
}
