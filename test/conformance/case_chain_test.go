// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// containerRuntime is a runtime as they are built: on libcni, with a cache
// that is on disk.
type containerRuntime struct {
	c    *C
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
}

// Runtime loads a configuration list of the subject's plugin and the plugins
// that follow it.
func (c *C) Runtime(n *Network, after ...Object) *containerRuntime {
	plugins := List{n.c.Subject.Config(n)}
	for _, p := range after {
		plugins = append(plugins, p)
	}
	if isStandIn(c.Subject.Binary) {
		plugins[0] = Object{"type": filepath.Base(c.Subject.Binary)}
	}
	data := c.encode(Object{
		"cniVersion": "1.0.0", "cniVersions": List{"0.4.0", "1.0.0", Newest}, "name": n.Name, "plugins": plugins,
	})
	list, err := libcni.NetworkConfFromBytes(data)
	c.Must(err, "load the configuration list")
	path := c.Subject.Path()
	if isStandIn(c.Subject.Binary) {
		path = append(path, filepath.Dir(c.Subject.Binary))
	}
	return &containerRuntime{c: c, list: list, cni: libcni.NewCNIConfigWithCacheDir(path, c.Path("cache"), nil)}
}

// rt describes an attachment to libcni.
func (a Attachment) rt(capabilities map[string]any) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: a.ContainerID, NetNS: a.Netns, IfName: a.Ifname, CapabilityArgs: capabilities}
}

// do runs a call of libcni in the host's namespace.
func (r *containerRuntime) do(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return r.c.Host.Do(func() error { return f(ctx) })
}

func (r *containerRuntime) Add(rt *libcni.RuntimeConf) *types100.Result {
	var result types.Result
	err := r.do(func(ctx context.Context) (err error) {
		result, err = r.cni.AddNetworkList(ctx, r.list, rt)
		return err
	})
	if err != nil {
		r.c.Fatalf("AddNetworkList: %v", err)
	}
	if result == nil {
		r.c.Fatalf("AddNetworkList: no result")
	}
	converted, err := types100.GetResult(result)
	if err != nil {
		r.c.Fatalf("convert the result: %v", err)
	}
	return converted
}

func (r *containerRuntime) Check(rt *libcni.RuntimeConf) error {
	return r.do(func(ctx context.Context) error { return r.cni.CheckNetworkList(ctx, r.list, rt) })
}

func (r *containerRuntime) Del(rt *libcni.RuntimeConf) error {
	return r.do(func(ctx context.Context) error { return r.cni.DelNetworkList(ctx, r.list, rt) })
}

func (r *containerRuntime) GC(args *libcni.GCArgs) error {
	return r.do(func(ctx context.Context) error { return r.cni.GCNetworkList(ctx, r.list, args) })
}

func (r *containerRuntime) Status() error {
	return r.do(func(ctx context.Context) error { return r.cni.GetStatusNetworkList(ctx, r.list) })
}

// OK records an error of libcni.
func (r *containerRuntime) OK(what string, err error) {
	if err != nil {
		r.c.Errorf("%s: %v", what, err)
	}
}

// The reference plugins that are used behind another one.
var (
	portmap   = Object{"type": "portmap", "capabilities": Object{"portMappings": true}, "snat": true}
	bandwidth = Object{"type": "bandwidth", "capabilities": Object{"bandwidth": true}}
	tuning    = Object{"type": "tuning", "capabilities": Object{"mac": true}, "sysctl": Object{"net.ipv4.conf.eth0.arp_filter": "1"}, "mtu": 1400}
	firewall  = Object{"type": "firewall", "backend": "iptables"}

	portMappings = List{Object{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}
	limits       = Object{"ingressRate": 1 << 20, "ingressBurst": 1 << 20, "egressRate": 1 << 20, "egressBurst": 1 << 20}
)

func chainCases() []Case {
	chain := func(id, names string, capabilities map[string]any, verify func(c *C, p *Pod), plugins ...Object) Case {
		return Case{
			ID: id, Level: MUST, Spec: "CNI 1.1.0, section 3 Adding, checking, deleting an attachment",
			Claim: "Followed by " + names + ", through libcni: ADD, CHECK and DEL succeed, and each plugin did its work",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				r := c.Runtime(n, plugins...)
				rt := p.Eth0().rt(capabilities)
				result := r.Add(rt)
				if len(result.IPs) != 1 {
					c.Errorf("want one address: %s", asJSON(result))
				}
				verify(c, p)
				r.OK("CHECK", r.Check(rt))
				r.OK("CHECK", r.Check(rt))
				r.OK("DEL", r.Del(rt))
				r.OK("DEL", r.Del(rt))
				c.Eventually("eth0 is gone", func() bool { return !p.HasLink("eth0") })
				n.MustHaveFree(1)
			},
		}
	}
	mapped := func(c *C, _ *Pod) {
		if !strings.Contains(c.inHost("nft", "list", "ruleset"), "8080") {
			c.Errorf("the host has no rule for port 8080")
		}
	}
	shaped := func(c *C, p *Pod) {
		qdiscs, err := c.Host.QdiscList(c.HostEnd(p, "eth0"))
		c.Must(err, "list queueing disciplines")
		for _, q := range qdiscs {
			if q.Type() == "tbf" {
				return
			}
		}
		c.Errorf("the host's end has no tbf: %v", qdiscs)
	}
	tuned := func(c *C, p *Pod) {
		if got := c.Link(p.Netns, "eth0").Attrs().MTU; got != 1400 {
			c.Errorf("mtu is %d, want 1400", got)
		}
	}
	filtered := func(c *C, _ *Pod) {
		if !strings.Contains(c.inHost("nft", "list", "ruleset"), "CNI-FORWARD") {
			c.Errorf("the host has no chain CNI-FORWARD")
		}
	}
	const mac = "02:00:5e:00:53:99"
	return []Case{
		chain("CHAIN-01", "portmap", map[string]any{"portMappings": portMappings}, mapped, portmap),
		chain("CHAIN-02", "bandwidth", map[string]any{"bandwidth": limits}, shaped, bandwidth),
		chain("CHAIN-03", "tuning", nil, tuned, tuning),
		chain("CHAIN-04", "firewall", nil, filtered, firewall),
		chain("CHAIN-05", "portmap, bandwidth, tuning and firewall", map[string]any{"portMappings": portMappings, "bandwidth": limits},
			func(c *C, p *Pod) { mapped(c, p); shaped(c, p); tuned(c, p); filtered(c, p) }, portmap, bandwidth, tuning, firewall),
		chain("CHAIN-06", "tuning, which changes the MAC", map[string]any{"mac": mac}, func(c *C, p *Pod) {
			if got := c.Link(p.Netns, "eth0").Attrs().HardwareAddr.String(); got != mac {
				c.Errorf("the MAC is %s, want %s", got, mac)
			}
		}, tuning),
		{
			ID: "CHAIN-07", Level: SHOULD, Spec: specCheck,
			Claim: "After tuning changed the MAC, the host still reaches the pod",
			Run: func(c *C) {
				n, p := c.Net(), c.Pod()
				r := c.Runtime(n, tuning)
				result := r.Add(p.Eth0().rt(map[string]any{"mac": mac}))
				addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
				c.Pings(c.Host, p.Netns, addr.Unmap())
			},
		},
		{
			ID: "CHAIN-08", Level: MUST, Spec: "CNI 1.1.0, section 3 Adding an attachment",
			Claim: "When a later plugin fails, libcni's DEL leaves nothing behind",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				bad := with(tuning, "sysctl", Object{"net.ipv4.no_such_thing": "1"})
				r := c.Runtime(n, bad)
				rt := p.Eth0().rt(nil)
				err := r.do(func(ctx context.Context) error {
					_, err := r.cni.AddNetworkList(ctx, r.list, rt)
					return err
				})
				if err == nil || !strings.Contains(err.Error(), "tuning") {
					c.Fatalf("want tuning to fail, got %v", err)
				}
				r.OK("DEL", r.Del(rt))
				c.Eventually("eth0 is gone", func() bool { return !p.HasLink("eth0") })
				n.MustHaveFree(1)
			},
		},
	}
}

func libcniCases() []Case {
	return []Case{
		{
			ID: "LIBCNI-01", Level: MUST, Spec: "CNI 1.1.0, section 1 Version considerations",
			Claim: "libcni validates the list, picks the highest version, and finds it among the supported ones",
			Run: func(c *C) {
				r := c.Runtime(c.Net())
				if r.list.CNIVersion != Newest {
					c.Errorf("libcni picked %s", r.list.CNIVersion)
				}
				r.OK("ValidateNetworkList", r.do(func(ctx context.Context) error {
					_, err := r.cni.ValidateNetworkList(ctx, r.list)
					return err
				}))
				r.OK("GetVersionInfo", r.do(func(ctx context.Context) error {
					info, err := r.cni.GetVersionInfo(ctx, r.list.Plugins[0].Network.Type)
					if err == nil && !strings.Contains(strings.Join(info.SupportedVersions(), " "), Newest) {
						return errors.New("does not support " + Newest)
					}
					return err
				}))
			},
		},
		{
			ID: "LIBCNI-02", Level: MUST, Spec: "CNI 1.1.0, section 3: the runtime must store the result",
			Claim: "The result survives libcni's cache: what is read back is what ADD said",
			Run: func(c *C) {
				n, p := c.Dual(), c.Pod()
				r := c.Runtime(n)
				rt := p.Eth0().rt(nil)
				result := r.Add(rt)
				cached, err := r.cni.GetNetworkListCachedResult(r.list, rt)
				c.Must(err, "read the cache")
				if asJSON(result) != asJSON(cached) {
					c.Errorf("the cache has\n%s\nwant\n%s", asJSON(cached), asJSON(result))
				}
			},
		},
		{
			ID: "LIBCNI-03", Level: MUST, Spec: "CNI 1.1.0, section 3 Deleting an attachment",
			Claim: "libcni replays the configuration of ADD at DEL, after the list has changed on disk",
			Run: func(c *C) {
				n, p := c.Tiny(1), c.Pod()
				rt := p.Eth0().rt(nil)
				r := c.Runtime(n)
				r.Add(rt)
				r.OK("DEL", c.Runtime(n, Object{"type": "tuning"}).Del(rt))
				c.Eventually("eth0 is gone", func() bool { return !p.HasLink("eth0") })
				n.MustHaveFree(1)
			},
		},
		{
			ID: "LIBCNI-04", Level: SHOULD, Spec: specGC,
			Claim: "libcni's GC deletes what it cached and is not valid, and keeps what is valid",
			Run: func(c *C) {
				n, dead, alive := c.Tiny(2), c.Pod(), c.Pod()
				r := c.Runtime(n)
				r.Add(dead.Eth0().rt(nil))
				r.Add(alive.Eth0().rt(nil))
				c.vanish(dead)
				valid := []types.GCAttachment{{ContainerID: alive.ID, IfName: "eth0"}}
				for range 3 {
					r.OK("GC", r.GC(&libcni.GCArgs{ValidAttachments: valid}))
				}
				r.OK("CHECK", r.Check(alive.Eth0().rt(nil)))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "LIBCNI-05", Level: SHOULD, Spec: specGC,
			Claim: "With its cache lost, libcni's GC frees what is gone and destroys nothing that lives",
			Run: func(c *C) {
				n, dead, alive := c.Tiny(2), c.Pod(), c.Pod()
				r := c.Runtime(n)
				r.Add(dead.Eth0().rt(nil))
				r.Add(alive.Eth0().rt(nil))
				c.vanish(dead)
				c.Must(os.Rename(c.Path("cache"), c.Path("cache-was")), "lose the cache")
				r.OK("GC", r.GC(&libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}))
				c.Must(os.Rename(c.Path("cache-was"), c.Path("cache")), "find the cache")
				r.OK("CHECK", r.Check(alive.Eth0().rt(nil)))
				n.MustHaveFree(1)
			},
		},
		{
			ID: "LIBCNI-06", Level: MUST, Spec: specStatus,
			Claim: "libcni understands STATUS: nothing when ready, the typed error 50 or 51 when exhausted",
			Run: func(c *C) {
				n := c.Tiny(1)
				r := c.Runtime(n)
				r.OK("STATUS", r.Status())
				r.Add(c.Pod().Eth0().rt(nil))
				var e *types.Error
				if err := r.Status(); !errors.As(err, &e) || (e.Code != 50 && e.Code != 51) {
					c.Errorf("STATUS: got %v, want code 50 or 51", err)
				}
			},
		},
		{
			ID: "LIBCNI-07", Level: MUST, Spec: specError,
			Claim: "libcni understands errors: code and message arrive typed",
			Run: func(c *C) {
				r := c.Runtime(c.Net())
				a := c.Pod().Eth0()
				a.Netns = c.Path("nowhere")
				err := r.do(func(ctx context.Context) error {
					_, err := r.cni.AddNetworkList(ctx, r.list, a.rt(nil))
					return err
				})
				var e *types.Error
				if !errors.As(err, &e) || e.Code != 8 || !strings.Contains(e.Msg+e.Details, a.Netns) {
					c.Errorf("got %s, want code 8 and the path", describe(err))
				}
			},
		},
	}
}

// describe shows an error with its code.
func describe(err error) string {
	var e *types.Error
	if errors.As(err, &e) {
		return asJSON(e)
	}
	if err == nil {
		return "no error"
	}
	return err.Error()
}
