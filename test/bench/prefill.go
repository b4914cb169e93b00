// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
)

// prefill writes the journal that a node has after count ADDs: for each
// attachment the intent and the completion, with all that a real one says.
// Only the interfaces are missing. They are not what is measured, and making
// thousands would take minutes; the namespace that the records name lives, so
// garbage collection leaves them alone.
func prefill(ctx context.Context, dir, contender, subnet string, count int, alive *sandbox) error {
	store, err := journal.Own(ctx, dir, facts.New)
	if err != nil {
		return err
	}
	pool, err := netip.ParsePrefix(subnet)
	if err != nil {
		return err
	}
	id, err := kernel.StatNetns(alive.Path)
	if err != nil {
		return err
	}
	err = store.Update(ctx, func(*facts.Facts) ([]string, error) {
		var entries []string
		addr := pool.Addr().Next() // the gateway
		for i := range count {
			addr = addr.Next()
			spec := attach.Spec{
				Key:       attach.Key{Network: networkName(contender), ContainerID: fmt.Sprintf("%064x", i+1), Ifname: ifname},
				Instance:  dir,
				Pod:       attach.Pod{Namespace: "bench", Name: fmt.Sprintf("used-%d", i)},
				MTU:       1500,
				Addresses: []attach.Address{{Addr: addr, Subnet: pool, Gateway: pool.Addr().Next()}},
				Routes:    []attach.Route{{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}},
			}
			pair, err := attachedEntries(spec, alive.Path, facts.NetnsID(id))
			if err != nil {
				return nil, err
			}
			entries = append(entries, pair...)
		}
		return entries, nil
	})
	return errors.Join(err, store.Close())
}

func attachedEntries(spec attach.Spec, path string, id facts.NetnsID) ([]string, error) {
	d := facts.NewDetail(spec)
	d.Netns, d.NetnsID = path, id
	d.Pool = []netip.Prefix{spec.Addresses[0].Subnet}
	now := time.Now().UnixNano()
	intent, err := facts.EncodeIntent(now, spec.Key, facts.Veth, []netip.Addr{spec.Addresses[0].Addr}, d)
	if err != nil {
		return nil, err
	}
	complete, err := facts.EncodeComplete(now, spec.Key)
	return []string{intent, complete}, err
}

// recorded returns how many attachments a state directory holds.
func recorded(dir string) (int, error) {
	f, err := journal.Read(dir, facts.New)
	if err != nil {
		return 0, err
	}
	return f.Len(), nil
}
