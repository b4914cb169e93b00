// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/fabric"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/directory"
)

// measureNoop makes passes over what an agent left behind, with the agent's own
// drivers and all the peers, and returns how many milliseconds each took. A pass
// reads every kind from the kernel, compares it, and finds nothing to do.
//
// It happens in this process, because an agent makes such a pass once a minute
// and tells only how long it read. What is missing of an agent's are its own
// pods' few objects.
func measureNoop(ctx context.Context, c *crowd, m *member, passes int) (took []float64, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // an agent's
	k, err := openKernel(m.node)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	ctx, cancel := context.WithCancel(ctx)
	store, ended, err := readCrowd(ctx, c)
	if err != nil {
		cancel()
		return nil, err
	}
	defer func() { cancel(); err = errors.Join(err, <-ended) }()
	f, err := newFabric(store, k, m.stateDir)
	if err != nil {
		return nil, err
	}
	f.Step(time.Now())
	if err := settledFabric(f); err != nil {
		return nil, err
	}
	w, err := watchKernel(m.node)
	if err != nil {
		return nil, err
	}
	defer w.close()
	for range passes {
		time.Sleep(rest)
		f.Resync("")
		start := time.Now()
		f.Step(start)
		took = append(took, millis(time.Since(start)))
		if err := errors.Join(ctx.Err(), settledFabric(f), w.quiet()); err != nil {
			return nil, fmt.Errorf("make a pass that finds nothing to do: %w", err)
		}
	}
	return took, nil
}

func openKernel(s *sandbox) (k *kernel.Handle, err error) {
	ns, err := kernel.OpenNetns(s.Path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	err = ns.Do(func() error {
		k, err = kernel.Open()
		return err
	})
	return k, err
}

// readCrowd reads the registry, and keeps reading until ctx ends.
func readCrowd(ctx context.Context, c *crowd) (store *registry.Store, ended chan error, err error) {
	d, err := directory.Open(c.dir, selfName, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	store, ended = registry.NewStore(), make(chan error, 1)
	go func() { ended <- d.Run(ctx, store) }()
	return store, ended, await(settleLimit, "read the registry", func() (synced bool, err error) {
		store.View(func(s *registry.State) { synced = s.Synced })
		return synced, ctx.Err()
	})
}

func newFabric(store *registry.Store, k *kernel.Handle, stateDir string) (*fabric.Fabric, error) {
	underlay, err := k.Underlay(nil, nil)
	if err != nil {
		return nil, err
	}
	checksum, _ := kernel.ProbeChecksumOffload()
	f := fabric.New(store, fabric.Drivers{
		Sysctls: k.Sysctls(kernel.ForwardingIPv4, kernel.ForwardingIPv6), Links: k.VXLANLinks(stateDir),
		Addresses: k.FabricAddresses(), Neighbours: k.FabricNeighbours(), FDB: k.FDB(),
		Routes: k.FabricRoutes(), NAT: k.NAT("weft"),
	})
	f.SetSelf(topology.Self{
		Node: selfName, Underlay: underlay, Backend: topology.Auto,
		VNI: v1alpha1.DefaultVNI, Port: v1alpha1.DefaultVXLANPort, Checksum: checksum,
	})
	f.SetNode(fabric.Node{})
	return f, nil
}

// settledFabric sees that everything is in sync, and that it is everything.
func settledFabric(f *fabric.Fabric) error {
	want := map[string]int{fabric.Routes: 2 * peerCount, fabric.Neighbours: 2 * peerCount, fabric.FDB: peerCount}
	for _, s := range f.Status() {
		if s.InSyncSince.IsZero() || s.Desired < want[s.Kind] {
			return fmt.Errorf("%s: %d objects in all, %d pending: %w", s.Kind, s.Desired, s.Pending, s.LastError)
		}
	}
	return nil
}
