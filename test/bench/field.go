// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// field is everybody who takes part, with the agents that some of them need.
type field struct {
	places places
	alive  *sandbox // the namespace that prefilled records name
	agents []*agent

	networks map[string]*network
	subnets  int
}

func newField(p places, alive *sandbox) *field {
	return &field{places: p, alive: alive, networks: map[string]*network{}}
}

// subnet gives each contender a /20 of its own: they share a host, and with it
// a routing table.
func (f *field) subnet() string {
	f.subnets++
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(f.subnets)}), 20).String()
}

func (f *field) dir(name string) string { return filepath.Join(f.places.run(), name) }

func ipamSection(kind, subnet string) object {
	return object{"type": kind, "ranges": [][]object{{{"subnet": subnet}}}, "routes": []object{{"dst": "0.0.0.0/0"}}}
}

// addThin enters weft-cni without an agent.
func (f *field) addThin(ctx context.Context, name string, used int, masquerade bool) error {
	dir, subnet := f.dir(name), f.subnet()
	if used > 0 {
		if err := prefill(ctx, dir, name, subnet, used, f.alive); err != nil {
			return err
		}
	}
	conf := object{"type": "weft-cni", "stateDir": dir, "ipMasq": masquerade, "ipam": ipamSection("weft-ipam", subnet)}
	return f.enter(name, conf, func() (int, error) { return recorded(dir) })
}

// addThick enters weft-cni with an agent of its own.
func (f *field) addThick(ctx context.Context, name string, used int, masquerade bool) error {
	dir, subnet := f.dir(name), f.subnet()
	if used > 0 {
		if err := prefill(ctx, dir, name, subnet, used, f.alive); err != nil {
			return err
		}
	}
	a, err := startAgent(f.places, dir, "", object{"network": object{
		"ranges":     [][]object{{{"subnet": subnet}}},
		"routes":     []object{{"dst": "0.0.0.0/0"}},
		"masquerade": masquerade,
	}})
	if a != nil {
		f.agents = append(f.agents, a)
	}
	if err != nil {
		return err
	}
	conf := object{"type": "weft-cni", "socket": a.socket}
	if err := f.enter(name, conf, func() (int, error) { return recorded(dir) }); err != nil {
		return err
	}
	f.networks[name].agent = a
	return nil
}

// addReference enters a reference plugin with host-local.
func (f *field) addReference(name string, conf object) error {
	section := ipamSection("host-local", f.subnet())
	section["dataDir"] = f.dir(name)
	conf["ipam"] = section
	reservations := filepath.Join(f.dir(name), networkName(name))
	return f.enter(name, conf, func() (int, error) { return hostLocalHeld(reservations) })
}

// hostLocalHeld counts the files that are named after an address.
func hostLocalHeld(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	held := 0
	for _, e := range entries {
		if _, err := netip.ParseAddr(strings.ReplaceAll(e.Name(), "_", ":")); err == nil {
			held++
		}
	}
	return held, err
}

func (f *field) enter(name string, conf object, held func() (int, error)) error {
	n, err := newNetwork(name, conf, f.places, held)
	f.networks[name] = n
	return err
}

// assemble enters everybody.
func (f *field) assemble(ctx context.Context) error {
	return errors.Join(
		f.addThick(ctx, thick, 0, false),
		f.addThin(ctx, thin, 0, false),
		f.addThick(ctx, thick4000, usedAddresses, false),
		f.addThin(ctx, thin4000, usedAddresses, false),
		f.addReference(ptp, object{"type": "ptp", "ipMasq": false}),
		f.addReference(bridge, object{"type": "bridge", "bridge": "bench0", "isGateway": true, "ipMasq": false}),
		f.addThick(ctx, thickMasq, 0, true),
		f.addThin(ctx, thinMasq, 0, true),
		f.addReference(ptpMasq, object{"type": "ptp", "ipMasq": true}),
		f.addReference(bridgeMasq, object{"type": "bridge", "bridge": "bench1", "isGateway": true, "ipMasq": true}),
	)
}

// settleDown gives every network one pod that stays: what only the first pod of
// a node pays for, and what only the last one takes away, is not measured.
func (f *field) settleDown(ctx context.Context) error {
	for name, n := range f.networks {
		s, err := newSandbox(filepath.Join(f.places.run(), "resident-"+name))
		if err != nil {
			return err
		}
		if _, err := n.Attach(ctx, s, newContainerID()); err != nil {
			return err
		}
	}
	return nil
}

// pick returns some of the field.
func (f *field) pick(names ...string) []contender {
	picked := make([]contender, len(names))
	for i, name := range names {
		picked[i] = f.networks[name]
	}
	return picked
}

// unwatched returns contenders whose agents' logs are not asked for after each
// call, because that takes time in a burst.
func (f *field) unwatched(names ...string) []contender {
	picked := make([]contender, len(names))
	for i, name := range names {
		n := *f.networks[name]
		n.agent = nil
		picked[i] = &n
	}
	return picked
}

func (f *field) stop() error {
	var errs []error
	for _, a := range f.agents {
		errs = append(errs, a.stop())
	}
	return errors.Join(errs...)
}
