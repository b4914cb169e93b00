// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/topology"
)

// Underlay returns this node's place in the network that the nodes share: one
// address per family at most, IPv4 first. wanted names the addresses, of which
// all must be there, on interfaces that are up; the first of each family counts.
//
// Without wanted ones it is, per family, an address of the default route's
// interface, or, without a default route, of the only other interface that is
// up and has one. Of several addresses the one that the kernel itself sends
// from comes first (IPv4: in IPv6 that depends on the destination), then those
// with more neighbours, then the lowest. No address of a device of ours, no
// temporary (RFC 8981), deprecated or secondary one is taken.
//
// had is the place known so far. Where no address is wanted, a family keeps it
// for as long as an interface has the address, or the interface is down: an
// uplink that flaps must not move the node to another interface.
func (h *Handle) Underlay(wanted []netip.Addr, had []topology.Underlay) ([]topology.Underlay, error) {
	var found []topology.Underlay
	err := h.with(func(c *conn) error {
		places, err := c.places()
		if err != nil {
			return err
		}
		if len(wanted) > 0 {
			found, err = c.wantedPlaces(places, wanted)
		} else {
			found, err = c.defaultPlaces(places, had)
		}
		return err
	})
	return found, err
}

// place is an address that a node can be reached by.
type place struct {
	prefix netip.Prefix
	link   link
	// passing: not to be chosen without being asked for.
	passing bool
}

func (p place) underlay() topology.Underlay {
	return topology.Underlay{Addr: p.prefix, Dev: p.link.name, MTU: p.link.mtu}
}

func (p place) String() string { return p.prefix.String() + " dev " + p.link.name }

// places lists the addresses of global scope, ascending.
func (c *conn) places() ([]place, error) {
	addresses, err := c.dumpAddresses()
	if err != nil {
		return nil, err
	}
	links := map[int]link{}
	var places []place
	for _, a := range addresses {
		if a.scope != unix.RT_SCOPE_UNIVERSE || a.flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
			continue
		}
		l, known := links[a.index]
		if !known {
			if err := c.exec(getLink(a.index, fmt.Sprintf("number %d", a.index), &l)); err != nil && !isErrno(err, unix.ENODEV) {
				return nil, err
			}
			links[a.index] = l
		}
		if l.name == "" || l.fabricDevice() || l.ours() {
			continue
		}
		const passing = unix.IFA_F_DEPRECATED | unix.IFA_F_SECONDARY // of IPv6 the latter means temporary
		places = append(places, place{prefix: a.prefix, link: l, passing: a.flags&passing != 0})
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), strings.Compare(a.link.name, b.link.name))
	})
	return places, nil
}

// wantedPlaces finds addresses by themselves. One that is on loopback, as with
// routing protocols, is reached by way of the default route.
func (c *conn) wantedPlaces(places []place, wanted []netip.Addr) ([]topology.Underlay, error) {
	var found []topology.Underlay
	var errs []error
	for _, a := range wanted {
		i := slices.IndexFunc(places, func(p place) bool { return p.prefix.Addr() == a })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("no interface has the node's address %s; there are: %s", a, listPlaces(places)))
		case !places[i].link.up:
			errs = append(errs, fmt.Errorf("the interface %s of the node's address %s is down", places[i].link.name, a))
		case slices.ContainsFunc(found, func(u topology.Underlay) bool { return u.Addr.Addr().Is4() == a.Is4() }):
		default:
			u := places[i].underlay()
			if places[i].link.index == loopbackIndex {
				var err error
				if u.MTU, err = c.uplinkMTU(); err != nil {
					return nil, err
				}
			}
			found = append(found, u)
		}
	}
	slices.SortStableFunc(found, func(a, b topology.Underlay) int { return a.Addr.Addr().BitLen() - b.Addr.Addr().BitLen() })
	return found, errors.Join(errs...)
}

func listPlaces(places []place) string {
	if len(places) == 0 {
		return "none"
	}
	var list []string
	for _, p := range places {
		list = append(list, p.String())
	}
	return strings.Join(list, ", ")
}

// defaultPlaces fails if it finds an address of neither family.
func (c *conn) defaultPlaces(places []place, had []topology.Underlay) ([]topology.Underlay, error) {
	var found []topology.Underlay
	var errs []error
	routes, err := c.defaultRoutes()
	if err != nil {
		return nil, err
	}
	for i, a := range documentation {
		kept, err := c.keptPlace(places, a.Is4(), had)
		if err != nil {
			return nil, err
		}
		if kept.Addr.IsValid() {
			found = append(found, kept)
			continue
		}
		p, err := choosePlace(places, a.Is4(), routes[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, p.underlay())
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("find the node's own address: %w; configure it", errors.Join(errs...))
}

// defaultRoutes returns the default route of each family of documentation. A
// family that has none goes by the interface of the other's: an address on
// another one, such as a container engine's bridge, is not for other nodes.
func (c *conn) defaultRoutes() ([]route, error) {
	routes := make([]route, len(documentation))
	for i, a := range documentation {
		var err error
		if routes[i], err = c.defaultRoute(a); err != nil {
			return nil, err
		}
	}
	for i := range routes {
		if other := routes[len(routes)-1-i]; routes[i].oif == 0 && other.oif != 0 {
			routes[i] = route{oif: other.oif}
		}
	}
	return routes, nil
}

// keptPlace returns the place that a family had, as it is now; the zero place
// if it is gone. The kernel takes IPv6 addresses from an interface that goes
// down, and gives them back or not.
func (c *conn) keptPlace(places []place, ipv4 bool, had []topology.Underlay) (topology.Underlay, error) {
	for _, u := range had {
		if u.Addr.Addr().Is4() != ipv4 {
			continue
		}
		if i := slices.IndexFunc(places, func(p place) bool { return p.prefix.Addr() == u.Addr.Addr() }); i >= 0 {
			return places[i].underlay(), nil
		}
		if u.Dev == "" {
			continue
		}
		var l link
		if err := c.exec(getLink(0, u.Dev, &l)); err != nil && !isErrno(err, unix.ENODEV) {
			return topology.Underlay{}, err
		}
		if l.name != "" && !l.up {
			return u, nil
		}
	}
	return topology.Underlay{}, nil
}

// choosePlace chooses among the addresses of one family. r is the default
// route, with oif 0 if there is none.
func choosePlace(places []place, ipv4 bool, r route) (place, error) {
	family := map[bool]string{true: "IPv4", false: "IPv6"}[ipv4]
	var candidates []place
	for _, p := range places {
		if p.prefix.Addr().Is4() == ipv4 && p.link.up && !p.passing && p.link.index != loopbackIndex && (r.oif == 0 || p.link.index == r.oif) {
			candidates = append(candidates, p)
		}
	}
	if len(candidates) == 0 {
		where := "no default route, and no interface that is up has a lasting address of global scope"
		if r.oif != 0 {
			where = "the interface of the default route has no lasting address of global scope"
		}
		return place{}, fmt.Errorf("%s: %s; there are: %s", family, where, listPlaces(places))
	}
	first := candidates[0].link.index
	if slices.ContainsFunc(candidates, func(p place) bool { return p.link.index != first }) {
		return place{}, fmt.Errorf("%s: no default route, and several interfaces with an address: %s", family, listPlaces(candidates))
	}
	if i := slices.IndexFunc(candidates, func(p place) bool { return ipv4 && p.prefix.Addr() == r.source }); i >= 0 {
		return candidates[i], nil
	}
	// The first of equal ones.
	return slices.MinFunc(candidates, func(a, b place) int { return a.prefix.Bits() - b.prefix.Bits() }), nil
}
