// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/crash"
)

// Attach makes a plan real: the host's part in the Handle's namespace, the
// pod's in ns. When it returns nil, packets flow.
//
// It fails with *ExistsError or *HostLinkExistsError, having changed nothing,
// where an interface name is taken. After any other error the caller calls
// Detach: what was made is still there. *RouteExistsError says that an address
// is in use on this host.
func (h *Handle) Attach(ns *Netns, p attach.Plan) error {
	return h.with(func(host *conn) error {
		at, err := host.create(ns, p)
		if err != nil {
			return err
		}
		if err := host.configureHostEnd(h, p, at.index); err != nil {
			return err
		}
		if err := host.attachShape(p, at.index); err != nil {
			return err
		}
		if err := configurePodEnd(ns, p, at.peerIndex, func() error { return host.settle(p, at.index) }); err != nil {
			return err
		}
		return h.attachPorts(p)
	})
}

// create makes the pair and learns the indices of both ends.
func (c *conn) create(ns *Netns, p attach.Plan) (link, error) {
	var at link
	crash.Point("kernel-link-add:before")
	add, get := addVeth(p, ns), getLink(0, p.HostIfname, &at)
	err := c.exec(add, get)
	crash.Point("kernel-link-add:after")
	switch {
	case add.err != nil && isErrno(add.err, unix.EEXIST):
		// Whose name is taken? If the host has the link, it answered just now.
		if get.err == nil {
			return link{}, &HostLinkExistsError{Ifname: p.HostIfname, Alias: at.alias}
		}
		return link{}, &ExistsError{Ifname: p.Ifname, Netns: ns.Path}
	case err != nil:
		return link{}, err
	}
	return at, nil
}

// configureHostEnd marks the host end as ours, brings it up and leads the
// pod's addresses to it.
//
// The host end comes up before the pod's: then the carrier is there when the
// pod's end comes up, and IPv6 in the sandbox has nothing to wait for.
func (c *conn) configureHostEnd(h *Handle, p attach.Plan, index int) error {
	crash.Point("kernel-host-link:before")
	noLinkLocal := setNoLinkLocal(p.HostIfname, index)
	msgs := []*message{setAlias(p.HostIfname, index, p.Alias), noLinkLocal}
	if p.ProxyARP {
		msgs = append(msgs, setProxyARP(p.HostIfname, index))
	}
	msgs = append(msgs, setUp(p.HostIfname, index))
	routes := make(map[*message]netip.Prefix, len(p.HostRoutes))
	for _, dst := range p.HostRoutes {
		m := addHostRoute(dst, p.HostIfname, index)
		routes[m] = dst
		msgs = append(msgs, m)
	}
	for _, n := range p.HostNeighbours {
		msgs = append(msgs, addPodNeighbour(n, p.HostIfname, index))
	}
	err := c.execTolerant(noLinkLocal, msgs)
	crash.Point("kernel-host-link:after")
	for m, dst := range routes {
		if m.err != nil && m.err == err && isErrno(err, unix.EEXIST) { //nolint:errorlint // is it this message that failed?
			return &RouteExistsError{Dst: dst, Device: c.deviceTowards(dst.Addr())}
		}
	}
	if err == nil && p.ProxyARP {
		err = h.answerARPAtOnce(p.HostIfname)
	}
	return err
}

// execTolerant is exec, but a kernel without IPv6 (or a link too narrow for
// it: the MTU is below 1280) may refuse noLinkLocal, having no address to
// generate anyway.
func (c *conn) execTolerant(noLinkLocal *message, msgs []*message) error {
	err := c.exec(msgs...)
	if err == nil || !isErrno(noLinkLocal.err, unix.EAFNOSUPPORT, unix.EOPNOTSUPP) {
		return err
	}
	noLinkLocal.err = nil
	return firstError(msgs)
}

func firstError(msgs []*message) error {
	for _, m := range msgs {
		if m.err != nil {
			return m.err
		}
	}
	return nil
}

// answerARPAtOnce removes the delay of up to 0.8 s with which the kernel
// answers ARP on behalf of others, meant for segments with several proxies.
func (h *Handle) answerARPAtOnce(ifname string) error {
	crash.Point("kernel-proxy-delay:before")
	err := h.inside(func() error { return writeSysctl("net/ipv4/neigh/"+ifname+"/proxy_delay", "0") })
	crash.Point("kernel-proxy-delay:after")
	return err
}

// deviceTowards names the interface of the route to an address, or "".
func (c *conn) deviceTowards(a netip.Addr) string {
	var r route
	if c.exec(lookUpRoute(a, &r)) != nil || r.oif == 0 {
		return ""
	}
	var l link
	if c.exec(getLink(r.oif, "", &l)) != nil {
		return ""
	}
	return l.name
}

// configurePodEnd does everything inside the sandbox. Between bringing the link
// up and waiting for its addresses it calls linkUp.
func configurePodEnd(ns *Netns, p attach.Plan, index int, linkUp func() error) error {
	err := ns.with(func(c *conn) error {
		crash.Point("kernel-pod-link:before")
		err := c.applyPodEnd(ns, p, index)
		crash.Point("kernel-pod-link:after")
		if err == nil {
			err = linkUp()
		}
		if err == nil {
			err = c.awaitAddresses(p, index)
		}
		return err
	})
	if err == nil && len(p.Sysctls) > 0 {
		crash.Point("kernel-pod-sysctls:before")
		err = ns.Do(func() error { return writeSysctls(p.Sysctls) })
		crash.Point("kernel-pod-sysctls:after")
	}
	if err != nil {
		return fmt.Errorf("in sandbox %s: %w", ns.Path, err)
	}
	return nil
}

// applyPodEnd sends the sandbox's part in one batch. Where the sandbox has
// IPv6 disabled and the plan needs it, IPv6 is enabled on this interface alone
// and what failed is sent again, in the same order.
func (c *conn) applyPodEnd(ns *Netns, p attach.Plan, index int) error {
	noLinkLocal := setNoLinkLocal(p.Ifname, index)
	msgs := []*message{noLinkLocal}
	for _, a := range p.Addresses {
		msgs = append(msgs, addAddress(a, p.Ifname, index))
	}
	// A route needs its link up; announcing is for changes after that.
	msgs = append(msgs, setUp(p.Ifname, index), setNotify(p.Ifname, index))
	for _, n := range p.Neighbours {
		msgs = append(msgs, addNeighbour(n, p.Ifname, index))
	}
	for _, r := range p.Routes {
		msgs = append(msgs, addRoute(r, p.Ifname, index))
	}
	err := c.execTolerant(noLinkLocal, msgs)
	if err == nil || !p.HasIPv6() || !isErrno(err, unix.EACCES, unix.EPERM) {
		return err
	}
	key := "net/ipv6/conf/" + p.Ifname + "/disable_ipv6"
	if enable := ns.Do(func() error { return writeSysctl(key, "0") }); enable != nil {
		return fmt.Errorf("%w; enable IPv6 on the interface: %w", err, enable)
	}
	var again []*message
	for _, m := range msgs {
		if m.err != nil {
			again = append(again, m)
		}
	}
	return c.exec(again...)
}
