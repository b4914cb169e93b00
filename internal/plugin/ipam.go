// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/kernel"
)

// serveIPAM serves a call of weft-ipam: addresses for an interface that
// another plugin (bridge, ptp, macvlan) makes.
func serveIPAM(ctx context.Context, call cni.Call, cfg *cni.Config) ([]byte, *cni.Error, func()) {
	l, err := openLocal(cfg.StateDir)
	if err != nil {
		return nil, explain(err), nil
	}
	out, err := l.ipam(ctx, call, cfg)
	return out, explain(err), func() {
		l.sweep(ctx, call)
		l.close()
	}
}

func (l *local) ipam(ctx context.Context, call cni.Call, cfg *cni.Config) ([]byte, error) {
	key := call.Key(cfg.Name)
	switch call.Command {
	case cni.Add:
		return l.ipamAdd(ctx, call, cfg)
	case cni.Del:
		dataDir := ""
		if cfg.IPAM != nil {
			dataDir = cfg.IPAM.DataDir
		}
		return nil, errors.Join(l.engine.Release(ctx, key), releaseHostLocal(dataDir, key.Network, key.ContainerID, key.Ifname))
	case cni.Check:
		addrs, err := l.engine.Reserved(ctx, key)
		if err != nil {
			return nil, err
		}
		return nil, checkReserved(addrs, cfg.PrevResult)
	case cni.GC:
		_, err := l.engine.Collect(ctx, cfg.Name, facts.IPAM, listed(cfg))
		return nil, err
	case cni.Status:
		network, cerr := networkOf(cfg)
		if cerr != nil {
			return nil, cerr
		}
		if err := l.engine.Ready(ctx, facts.IPAM, network); err != nil {
			return nil, cni.Errorf(cni.CodeUnavailable, "no address can be granted now: %w", err)
		}
		return nil, nil
	default:
		return nil, cni.Errorf(cni.CodeEnvironment, "CNI_COMMAND=%q: want ADD, DEL, CHECK, GC, STATUS or VERSION", call.Command)
	}
}

func (l *local) ipamAdd(ctx context.Context, call cni.Call, cfg *cni.Config) ([]byte, error) {
	network, cerr := networkOf(cfg)
	if cerr != nil {
		return nil, cerr
	}
	req := engine.ReserveRequest{
		Key: call.Key(cfg.Name), Pod: cfg.Args.Pod, Network: network, Want: cfg.Want, Netns: call.Netns,
	}
	// The namespace is evidence only: the plugin that calls us judges it.
	if id, err := kernel.StatNetns(call.Netns); err == nil {
		req.NetnsID = id
	}
	g, err := l.engine.Reserve(ctx, req)
	if err != nil {
		return nil, err
	}
	r := cni.Result{Routes: g.Routes, DNS: firstDNS(cfg.DNS, ipamDNS(cfg.IPAM))}
	for _, a := range g.Addresses {
		r.IPs = append(r.IPs, cni.IP{Address: netip.PrefixFrom(a.Addr, a.Subnet.Bits()), Gateway: a.Gateway})
	}
	return r.Encode(cfg.CNIVersion)
}

// checkReserved compares the reservation with the result of ADD. Addresses
// that the result has besides are not ours.
func checkReserved(reserved []netip.Addr, prev *cni.Result) error {
	if prev == nil {
		return nil
	}
	for _, a := range reserved {
		if !slices.ContainsFunc(prev.IPs, func(ip cni.IP) bool { return ip.Address.Addr() == a }) {
			return cni.Errorf(cni.CodeDrift, "reserved is %s, but the last result has %s", a, addressesOf(prev))
		}
	}
	return nil
}

func addressesOf(r *cni.Result) string {
	var addrs []netip.Prefix
	for _, ip := range r.IPs {
		addrs = append(addrs, ip.Address)
	}
	return fmt.Sprint(addrs)
}
