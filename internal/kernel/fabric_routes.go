// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
)

type fabricRoutes struct{ h *Handle }

// FabricRoutes returns the driver of the routes to other nodes, of unreachable
// ones, and of local ones, all of RouteProtocol. A pod's host route has no
// gateway, and is none of them.
//
// A route of last resort stands beside a pod's, whichever comes first, and
// beside any other route of its destination: only one of the same metric is in
// its way.
//
// A local route stands beside the one that the kernel makes for an address of
// the host's own, whichever comes first: it is there, and goes, whatever becomes
// of the address.
//
// A link that goes down takes its routes with it. Of IPv4 ones the kernel does
// not say so.
func (h *Handle) FabricRoutes() fabricRoutes { return fabricRoutes{h} }

// Metrics of our routes: of the last resort, and of others in IPv6, as the
// kernel makes of none (IP6_RT_PRIO_USER). In IPv4 others have 0. A pod's host
// route has that of others, too.
const (
	lastResortMetric = 4278198272 // what the kernel's documentation advises for the like (vrf.rst)
	ipv6Metric       = 1024
)

func routeMetric(k topology.RouteKey) int {
	switch {
	case k.LastResort:
		return lastResortMetric
	case k.Dst.Addr().Is6():
		return ipv6Metric
	}
	return 0
}

// tampered is the device of a route of ours that is not as this driver makes
// them: with another metric, several next hops, or twice.
const tampered = "?"

// fabric reports whether a route is of this driver, and where it leads. name
// tells a link's name by its index.
func (r route) fabric(name func(index int) string) (topology.RouteKey, topology.Route, bool) {
	k := r.key()
	if r.protocol != RouteProtocol || !k.Local && (r.table != unix.RT_TABLE_MAIN || r.podRoute()) {
		return k, topology.Route{}, false
	}
	v := topology.Route{Gateway: r.gateway}
	switch {
	case r.multi, r.priority != routeMetric(k):
		v.Dev = tampered
	case k.Local:
		if r.kind != unix.RTN_LOCAL || r.oif != loopbackIndex {
			v.Dev = tampered
		}
	case r.kind == unix.RTN_UNICAST:
		v.Dev = name(r.oif)
	case r.kind != unix.RTN_UNREACHABLE:
		v.Dev = tampered
	}
	return k, v, true
}

// key returns the key of a route in the main table or in the local one.
func (r route) key() topology.RouteKey {
	return topology.RouteKey{
		Dst: r.dst, Local: r.table == unix.RT_TABLE_LOCAL,
		LastResort: r.table == unix.RT_TABLE_MAIN && r.priority == lastResortMetric,
	}
}

// podRoute reports whether the route leads to a pod, directly.
func (r route) podRoute() bool {
	return r.kind == unix.RTN_UNICAST && !r.gateway.IsValid() && !r.multi && !r.key().LastResort
}

// Observe implements reconcile.Driver. IPv6 may omit a route while others come
// and go, or tell it twice; adding it again does no harm.
func (d fabricRoutes) Observe() (map[topology.RouteKey]topology.Route, error) {
	var observed map[topology.RouteKey]topology.Route
	err := d.h.with(func(c *conn) error {
		routes, err := c.dumpRoutes(unix.AF_UNSPEC, RouteProtocol)
		observed = make(map[topology.RouteKey]topology.Route, len(routes))
		names := linkNames{c: c}
		for _, r := range routes {
			k, v, ours := r.fabric(names.of)
			if !ours {
				continue
			}
			if other, twice := observed[k]; twice && other != v {
				v = topology.Route{Dev: tampered}
			}
			observed[k] = v
		}
		if names.err != nil {
			return names.err
		}
		return err
	})
	return observed, err
}

// linkNames looks links up, each once.
type linkNames struct {
	c     *conn
	known map[int]link
	err   error // of a look-up, the first
}

// of returns the name of a link, or "" if there is none any more.
func (n *linkNames) of(index int) string { return n.link(index).name }

// link returns a link, or the zero value if there is none any more.
func (n *linkNames) link(index int) link {
	l, known := n.known[index]
	if known || index == 0 {
		return l
	}
	if err := n.c.exec(getLink(index, fmt.Sprintf("number %d", index), &l)); err != nil && !isErrno(err, unix.ENODEV) && n.err == nil {
		n.err = err
	}
	if n.known == nil {
		n.known = map[int]link{}
	}
	n.known[index] = l
	return l
}

type routeOp = delta.Op[topology.RouteKey, topology.Route]

// Apply implements reconcile.Driver.
//
// In the common case each operation is one message that the kernel carries out
// only if the table is as expected; before an addition or a change in the main
// table, another one asks what is there. Where the answer is surprising, the
// whole table is read, once.
func (d fabricRoutes) Apply(ops []routeOp) []error {
	errs := make([]error, len(ops))
	err := d.h.with(func(c *conn) error {
		w := routeWriter{c: c, indexes: map[string]int{}, errs: errs}
		if err := w.resolve(ops); err != nil {
			return err
		}
		surprising, err := w.attempt(ops)
		if err != nil || len(surprising) == 0 {
			return err
		}
		return w.settle(ops, surprising)
	})
	return failing(errs, err)
}

// routeWriter carries out one Apply.
type routeWriter struct {
	c       *conn
	indexes map[string]int // of the devices that operations name; 0: missing
	errs    []error        // one per operation
}

// resolve looks up the devices that the operations name.
func (w *routeWriter) resolve(ops []routeOp) error {
	for i, op := range ops {
		name := op.Want.Dev
		if op.Verb == delta.Delete || name == "" {
			continue
		}
		index, known := w.indexes[name]
		if !known {
			l, _, err := w.c.findLink(name)
			if err != nil {
				return err
			}
			index = l.index
			w.indexes[name] = index
		}
		if index == 0 {
			w.errs[i] = fmt.Errorf("add route %s: there is no device %s", describeFabricRoute(op.Key, op.Want), name)
		}
	}
	return nil
}

// lookUp asks what the main table has for each addition and change. A route of
// another key says nothing: it may hide the route, being more specific, or better
// than one of last resort.
func (w *routeWriter) lookUp(ops []routeOp) ([]route, error) {
	found := make([]route, len(ops))
	var msgs []*message
	for i, op := range ops {
		if op.Verb != delta.Delete && !op.Key.Local && w.errs[i] == nil {
			msgs = append(msgs, matchRoute(op.Key.Dst.Addr(), &found[i]))
		}
	}
	if err := w.c.execEach(msgs); err != nil {
		return nil, err
	}
	for i, op := range ops {
		if r := found[i]; r.table != unix.RT_TABLE_MAIN || r.key() != op.Key {
			found[i] = route{}
		}
	}
	return found, nil
}

// attempt sends one message per operation. It returns the operations for which
// the table was not as expected.
func (w *routeWriter) attempt(ops []routeOp) (surprising []int, err error) {
	found, err := w.lookUp(ops)
	if err != nil {
		return nil, err
	}
	names := linkNames{c: w.c}
	var msgs []*message
	var at []int
	send := func(i int, m *message) { msgs, at = append(msgs, m), append(at, i) }
	for i, op := range ops {
		switch {
		case w.errs[i] != nil:
		case op.Have.Dev == tampered, ambiguous(op):
			surprising = append(surprising, i)
		case op.Verb == delta.Delete:
			send(i, deleteFabricRoute(op.Key, op.Have))
		case !found[i].dst.IsValid():
			send(i, w.newRoute(op, create))
		default:
			_, have, ours := found[i].fabric(names.of)
			switch {
			case !ours:
				w.errs[i] = routeInTheWay(op.Key, found[i], &names)
			case have.Dev == tampered:
				surprising = append(surprising, i)
			case have != op.Want:
				send(i, w.newRoute(op, unix.NLM_F_CREATE|unix.NLM_F_REPLACE))
			}
		}
	}
	if names.err != nil {
		return nil, names.err
	}
	if err := w.c.execEach(msgs); err != nil {
		return nil, err
	}
	for j, m := range msgs {
		if i := at[j]; isErrno(m.err, unix.EEXIST, unix.ESRCH, unix.ENOENT) || hidden(ops[i], m.err) {
			surprising = append(surprising, i)
		} else {
			w.errs[i] = m.err
		}
	}
	return surprising, nil
}

// ambiguous reports whether the message of a deletion could also mean another
// route, if its own is gone already: in IPv4 metric 0 stands for any, so that of
// last resort; in IPv6, where types do not count, that of a pod. Nothing ever asks
// for such a route, so that reading the tables costs nothing that matters.
func ambiguous(op routeOp) bool {
	return op.Verb == delta.Delete && op.Key.Dst.IsSingleIP() && !op.Key.Local && !op.Key.LastResort && !op.Have.Gateway.IsValid()
}

// settle reads the tables and does what is right for each operation.
func (w *routeWriter) settle(ops []routeOp, surprising []int) error {
	routes, err := w.c.dumpRoutes(unix.AF_UNSPEC, 0)
	if err != nil {
		return err
	}
	byKey := make(map[topology.RouteKey][]route, len(surprising))
	for _, i := range surprising {
		byKey[ops[i].Key] = nil
	}
	for _, r := range routes {
		k := r.key()
		if list, asked := byKey[k]; asked && (k.Local || r.table == unix.RT_TABLE_MAIN) {
			byKey[k] = append(list, r)
		}
	}
	names := linkNames{c: w.c}
	for _, i := range surprising {
		w.errs[i] = w.settleOne(ops[i], byKey[ops[i].Key], &names)
		if names.err != nil {
			return names.err
		}
	}
	return nil
}

func (w *routeWriter) settleOne(op routeOp, there []route, names *linkNames) error {
	var ours []route
	var values []topology.Route
	for _, r := range there {
		_, v, mine := r.fabric(names.of)
		if mine {
			ours, values = append(ours, r), append(values, v)
		}
	}
	flags := create
	switch {
	case op.Verb == delta.Delete:
		return w.deleteAll(op.Key, ours)
	case len(ours) == 1 && values[0] == op.Want:
		return nil
	case len(ours) == 1 && values[0].Dev != tampered && !op.Key.Local:
		flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	case op.Key.Local:
		// The host's own address has a local route already.
		flags = unix.NLM_F_CREATE | unix.NLM_F_APPEND
		fallthrough
	default:
		for _, r := range there {
			if _, _, mine := r.fabric(names.of); !mine && (!op.Key.Local || r.kind != unix.RTN_LOCAL) {
				return routeInTheWay(op.Key, r, names)
			}
		}
		if err := w.deleteAll(op.Key, ours); err != nil {
			return err
		}
	}
	err := w.c.exec(w.newRoute(op, flags))
	if !hidden(op, err) {
		return err
	}
	nowhere := op
	nowhere.Want = topology.Route{}
	if err := w.c.exec(w.newRoute(nowhere, flags)); err != nil {
		return err
	}
	return w.c.exec(w.newRoute(op, unix.NLM_F_CREATE|unix.NLM_F_REPLACE))
}

// hidden reports whether the kernel refused an IPv6 route perhaps because
// another one leads to the gateway by another device: it asks for that though the
// gateway is on the link by decree. The other one may be the very route that is
// to change, where a lease's gateway is in its subnet. Unreachable routes are
// exempt from the question, and so the way to change is by such a one: for some
// microseconds packets come back, but none leaves by a third way.
func hidden(op routeOp, err error) bool {
	return isErrno(err, unix.EINVAL) && op.Verb != delta.Delete && op.Key.Dst.Addr().Is6() && op.Want.Gateway.IsValid()
}

// deleteAll deletes routes one by one, as exactly as they were read.
func (w *routeWriter) deleteAll(k topology.RouteKey, routes []route) error {
	for _, r := range routes {
		if err := w.c.exec(deleteRoute(k, r)); err != nil && !isErrno(err, unix.ESRCH, unix.ENOENT) {
			return err
		}
	}
	return nil
}
