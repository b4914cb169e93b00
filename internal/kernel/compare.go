// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// Difference is one way in which the kernel is not as it should be.
type Difference struct {
	Object   string // "route 0.0.0.0/0 in the sandbox"
	Expected string
	Found    string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: expected %s, found %s", d.Object, d.Expected, d.Found)
}

const (
	exists = "to exist"
	absent = "nothing"
)

// CompareOptions says what to compare beyond the default. A plugin later in
// the chain may rightly have changed these.
type CompareOptions struct {
	MAC bool // the hardware addresses of both ends
	MTU bool // the MTU of both ends
}

// Compare reads everything in the plan back from the kernel and returns what
// is missing or different, in the order of the plan: host end, pod end, its
// addresses, neighbours and routes, the host's routes and neighbours, limits and
// ports. Objects
// that the plan does not name are tolerated. More than one option adds up.
func (h *Handle) Compare(ns *Netns, p attach.Plan, opts ...CompareOptions) ([]Difference, error) {
	var want CompareOptions
	for _, o := range opts {
		want.MAC, want.MTU = want.MAC || o.MAC, want.MTU || o.MTU
	}
	d := &differences{options: want}
	err := ns.with(func(pod *conn) error {
		return h.with(func(host *conn) error { return d.compare(host, pod, p) })
	})
	if err == nil {
		err = d.ports(h, p)
	}
	return d.list, err
}

type differences struct {
	options CompareOptions
	list    []Difference
}

func (d *differences) add(object, expected, found string) {
	d.list = append(d.list, Difference{Object: object, Expected: expected, Found: found})
}

// expect adds a difference unless the two are equal.
func (d *differences) expect(object, expected, found string) {
	if expected != found {
		d.add(object, expected, found)
	}
}

func (d *differences) compare(host, pod *conn, p attach.Plan) error {
	hostEnd, hostFound, err := host.findLink(p.HostIfname)
	if err != nil {
		return err
	}
	podEnd, podFound, err := pod.findLink(p.Ifname)
	if err != nil {
		return err
	}
	d.hostLink(p, hostEnd, hostFound)
	d.podLink(p, podEnd, podFound, hostEnd, hostFound)
	if podFound {
		if err := d.podObjects(pod, p, podEnd); err != nil {
			return err
		}
	}
	if !hostFound {
		return nil
	}
	if err := d.hostObjects(host, p, hostEnd, podEnd); err != nil {
		return err
	}
	return d.shape(host, p, hostEnd)
}

func (d *differences) hostLink(p attach.Plan, l link, found bool) {
	object := "link " + p.HostIfname + " on the host"
	if !found {
		d.add(object, exists, absent)
		return
	}
	d.expect(object, "kind "+kindVeth, "kind "+orNone(l.kind))
	if l.group == DoomedGroup {
		d.add("group of "+object, "any other", "that of links to be deleted") // the next DetachAll takes it along
	}
	d.expect("state of "+object, "up", state(l.up))
	d.expect("alias of "+object, strconv.Quote(p.Alias), strconv.Quote(l.alias))
	if p.ProxyARP {
		d.expect("proxy ARP of "+object, "on", onOff(l.proxyARP))
	}
	if slices.ContainsFunc(p.Ports, attach.Mapping.Loopback) {
		d.expect("route_localnet of "+object, "on", onOff(l.routeLocalnet))
	}
	d.hardware(object, p.HostMAC, p.MTU, l)
}

func (d *differences) podLink(p attach.Plan, l link, found bool, hostEnd link, hostFound bool) {
	object := "link " + p.Ifname + " in the sandbox"
	if !found {
		d.add(object, exists, absent)
		return
	}
	d.expect("state of "+object, "up", state(l.up))
	// Both must point at each other; the indices alone are per namespace.
	if hostFound && (l.kind != kindVeth || l.peerIndex != hostEnd.index || hostEnd.peerIndex != l.index) {
		d.add("peer of "+object, fmt.Sprintf("%s (index %d) on the host", p.HostIfname, hostEnd.index),
			fmt.Sprintf("kind %s, peer index %d", orNone(l.kind), l.peerIndex))
	}
	d.hardware(object, p.MAC, p.MTU, l)
}

func (d *differences) hardware(object string, mac attach.MAC, mtu int, l link) {
	if d.options.MAC {
		d.expect("mac of "+object, mac.String(), l.mac.String())
	}
	if d.options.MTU {
		d.expect("mtu of "+object, strconv.Itoa(mtu), strconv.Itoa(l.mtu))
	}
}

func (d *differences) podObjects(c *conn, p attach.Plan, end link) error {
	addresses, err := c.dumpAddresses()
	if err != nil {
		return err
	}
	for _, a := range p.Addresses {
		object := fmt.Sprintf("address %s dev %s in the sandbox", a, p.Ifname)
		if !slices.ContainsFunc(addresses, func(found address) bool { return found.prefix == a && found.index == end.index }) {
			d.add(object, exists, absent)
		}
	}
	if d.keepsNeighbours(end, p.MAC) {
		if err := d.neighbours(c, p.Neighbours, p.Ifname, end.index, "in the sandbox"); err != nil {
			return err
		}
	}
	routes, err := c.dumpRoutes(unix.AF_UNSPEC, 0)
	if err != nil {
		return err
	}
	for _, r := range p.Routes {
		d.route(describeRoute(r)+" dev "+p.Ifname+" in the sandbox", wantedRoute(r, end.index), routes)
	}
	return nil
}

// keepsNeighbours reports whether the neighbours of an end are to be compared.
// When a link's MAC changes, the kernel forgets all its neighbours, permanent
// ones too: where the change is tolerated, so must be that.
func (d *differences) keepsNeighbours(end link, planned attach.MAC) bool {
	return d.options.MAC || end.mac == planned
}

func (d *differences) hostObjects(c *conn, p attach.Plan, end, podEnd link) error {
	routes, err := c.dumpRoutes(unix.AF_UNSPEC, RouteProtocol)
	if err != nil {
		return err
	}
	for _, dst := range p.HostRoutes {
		r := wantedRoute(attach.Route{Dst: dst}, end.index)
		if dst.Addr().Is4() {
			r.scope = unix.RT_SCOPE_LINK
		}
		d.route(fmt.Sprintf("%s dev %s on the host", dst, p.HostIfname), r, routes)
	}
	if !d.keepsNeighbours(end, p.HostMAC) {
		return nil
	}
	return d.podNeighbours(c, p, end, podEnd)
}

// podNeighbours compares what the host knows of the pod's hardware address. In
// IPv4 it learns it by itself (see addPodNeighbour), so an entry may be
// missing, but not wrong.
func (d *differences) podNeighbours(c *conn, p attach.Plan, end, podEnd link) error {
	list, err := c.dumpNeighbours(unix.AF_UNSPEC, end.index)
	if err != nil {
		return err
	}
	for _, n := range p.HostNeighbours {
		have, found := findNeighbour(list, n.Addr, end.index)
		object := fmt.Sprintf("neighbour %s dev %s on the host", n.Addr, p.HostIfname)
		switch {
		case n.Addr.Is6():
			d.permanentNeighbour(object, n, have, found)
		case found && have.valid && podEnd.index != 0:
			d.expect(object, podEnd.mac.String(), have.MAC.String())
		}
	}
	return nil
}

func (d *differences) neighbours(c *conn, want []attach.Neighbour, ifname string, index int, where string) error {
	list, err := c.dumpNeighbours(unix.AF_UNSPEC, index)
	if err != nil {
		return err
	}
	for _, n := range want {
		have, found := findNeighbour(list, n.Addr, index)
		d.permanentNeighbour(fmt.Sprintf("neighbour %s dev %s %s", n.Addr, ifname, where), n, have, found)
	}
	return nil
}

func findNeighbour(list []neighbour, a netip.Addr, index int) (neighbour, bool) {
	for _, n := range list {
		if n.Addr == a && n.index == index {
			return n, true
		}
	}
	return neighbour{}, false
}

func (d *differences) permanentNeighbour(object string, want attach.Neighbour, have neighbour, found bool) {
	text := absent
	if found {
		text = describeNeighbour(have)
	}
	d.expect(object, describeNeighbour(neighbour{Neighbour: want, permanent: true}), text)
}

func describeNeighbour(n neighbour) string {
	if n.permanent {
		return n.MAC.String() + " permanent"
	}
	return n.MAC.String() + " not permanent"
}

// ipv6DefaultPriority is what the kernel makes of priority 0 in IPv6
// (IP6_RT_PRIO_USER).
const ipv6DefaultPriority = 1024

// wantedRoute is the route as the kernel reports it once it exists.
func wantedRoute(r attach.Route, index int) route {
	w := route{
		dst: r.Dst, gateway: r.Gateway, oif: index, table: r.TableOrMain(), priority: r.Priority,
		mtu: r.MTU, advMSS: r.AdvMSS,
	}
	if r.Dst.Addr().Is6() && w.priority == 0 {
		w.priority = ipv6DefaultPriority
	}
	if r.Scope != nil && r.Dst.Addr().Is4() {
		w.scope = *r.Scope // IPv6 has no scopes of routes
	}
	return w
}

// route compares with the route of the same destination, table and priority
// over the same interface: several may differ in the rest, one must be right.
func (d *differences) route(object string, want route, have []route) {
	found := absent
	for _, r := range have {
		if r.dst != want.dst || r.table != want.table || r.priority != want.priority || r.oif != want.oif {
			continue
		}
		found = r.attributes()
		if found == want.attributes() {
			return
		}
	}
	d.add("route "+object, want.attributes(), found)
}

// attributes returns what is compared, for people to read.
func (r route) attributes() string {
	s := "no gateway"
	if r.gateway.IsValid() {
		s = "via " + r.gateway.String()
	}
	if r.dst.Addr().Is4() {
		s += " scope " + strconv.Itoa(r.scope)
	}
	if r.mtu != 0 {
		s += " mtu " + strconv.Itoa(r.mtu)
	}
	if r.advMSS != 0 {
		s += " advmss " + strconv.Itoa(r.advMSS)
	}
	return s
}

func state(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
