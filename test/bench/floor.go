// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bare does the netlink work of one attachment in this process, and nothing
// else: no process is started, no address looked for, nothing recorded. Its
// sockets are open beforehand, on both sides. It is what no plugin can beat.
//
// ADD: the pair, born in its two namespaces, both ends up, one address, a
// route to the gateway and the default route in the sandbox, a route on the
// host. DEL: delete the pair.
type bare struct {
	host    *netlink.Handle
	address *net.IPNet
	gateway net.IP
}

func newBare() (*bare, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &bare{
		host:    h,
		address: &net.IPNet{IP: net.IPv4(10, 100, 0, 2), Mask: net.CIDRMask(32, 32)},
		gateway: net.IPv4(10, 100, 0, 1),
	}, nil
}

const bareHostIfname = "bare0"

func (b *bare) Name() string       { return floor }
func (b *bare) Held() (int, error) { return 0, nil }

func (b *bare) Attach(_ context.Context, s *sandbox, _ string) (sample, error) {
	start := time.Now()
	err := b.attach(s)
	return sample{Total: millis(time.Since(start))}, err
}

func (b *bare) attach(s *sandbox) error {
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: bareHostIfname, MTU: 1500},
		PeerName:      ifname,
		PeerNamespace: netlink.NsFd(int(s.ns)),
	}
	if err := b.host.LinkAdd(veth); err != nil {
		return fmt.Errorf("floor: add the pair: %w", err)
	}
	if err := b.host.LinkSetUp(veth); err != nil {
		return fmt.Errorf("floor: bring the host end up: %w", err)
	}
	inside, err := s.inside.LinkByName(ifname)
	if err != nil {
		return fmt.Errorf("floor: find the pod end: %w", err)
	}
	if err := s.inside.AddrAdd(inside, &netlink.Addr{IPNet: b.address}); err != nil {
		return fmt.Errorf("floor: add the address: %w", err)
	}
	if err := s.inside.LinkSetUp(inside); err != nil {
		return fmt.Errorf("floor: bring the pod end up: %w", err)
	}
	link := inside.Attrs().Index
	gateway := &net.IPNet{IP: b.gateway, Mask: net.CIDRMask(32, 32)}
	for _, r := range []*netlink.Route{
		{LinkIndex: link, Dst: gateway, Scope: netlink.SCOPE_LINK},
		{LinkIndex: link, Gw: b.gateway},
	} {
		if err := s.inside.RouteAdd(r); err != nil {
			return fmt.Errorf("floor: add route %s: %w", r, err)
		}
	}
	r := &netlink.Route{LinkIndex: veth.Index, Dst: b.address, Scope: netlink.SCOPE_LINK}
	if err := b.host.RouteAdd(r); err != nil {
		return fmt.Errorf("floor: add host route: %w", err)
	}
	return nil
}

func (b *bare) Detach(_ context.Context, _ *sandbox, _ string) (sample, error) {
	start := time.Now()
	l, err := b.host.LinkByName(bareHostIfname)
	if err == nil {
		err = b.host.LinkDel(l)
	}
	if err != nil {
		return sample{}, fmt.Errorf("floor: delete the pair: %w", err)
	}
	return sample{Total: millis(time.Since(start))}, nil
}
