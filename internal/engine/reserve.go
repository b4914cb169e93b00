// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"net/netip"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/kernel"
)

// ReserveRequest asks for addresses only, for an interface that another plugin
// makes.
type ReserveRequest struct {
	Key     attach.Key
	Pod     attach.Pod
	Network Network
	Want    []netip.Addr

	// Netns is the sandbox's path as the runtime gave it, and NetnsID what it
	// led to: the evidence for garbage collection.
	Netns   string
	NetnsID kernel.NetnsID
}

// Reserve takes addresses. A key that has some already is refused with
// *AttachedError, unless its sandbox has changed since, or a release of it was
// begun by a process that died: then the reservation is one that nobody ended,
// and its addresses pass to the new request.
func (e *Engine) Reserve(ctx context.Context, r ReserveRequest) (Granted, error) {
	unlock, err := e.Store.LockKey(ctx, r.Key.String())
	if err != nil {
		return Granted{}, err
	}
	defer unlock()
	var g Granted
	err = e.Store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		earlier, found := f.Get(r.Key)
		if found {
			d, err := earlier.Detail()
			if err != nil {
				return nil, err
			}
			same := d.NetnsID == facts.NetnsID(r.NetnsID) && earlier.Phase != facts.Releasing
			if same || earlier.Kind != facts.IPAM {
				return nil, &AttachedError{Record: earlier}
			}
		}
		if g, err = e.allocate(f.Usage(facts.IPAM, r.Key.Network), r.Key, r.Network, r.Want, earlier.Addresses); err != nil {
			return nil, err
		}
		return e.reservation(r, g)
	})
	return g, err
}

func (e *Engine) reservation(r ReserveRequest, g Granted) ([]string, error) {
	d := facts.NewDetail(attach.Spec{Key: r.Key, Pod: r.Pod, Addresses: g.Addresses, Routes: g.Routes})
	d.Netns, d.NetnsID = r.Netns, facts.NetnsID(r.NetnsID)
	d.Pool = r.Network.Pool.Subnets()
	addrs := make([]netip.Addr, 0, len(g.Addresses))
	for _, a := range g.Addresses {
		addrs = append(addrs, a.Addr)
	}
	entry, err := facts.EncodeReserve(e.now(), r.Key, addrs, d)
	return []string{entry}, err
}

// Release frees a reservation; there need not be one. A record of another kind
// under the same key is not touched.
func (e *Engine) Release(ctx context.Context, k attach.Key) error {
	unlock, err := e.Store.LockKey(ctx, k.String())
	if err != nil {
		return err
	}
	defer unlock()
	rec, found, err := e.lookup(ctx, k)
	if err != nil || !found || rec.Kind != facts.IPAM {
		return err
	}
	return e.remove(ctx, rec, nil)
}

// Reserved returns the addresses of a reservation, or ErrNotRecorded.
func (e *Engine) Reserved(ctx context.Context, k attach.Key) ([]netip.Addr, error) {
	rec, found, err := e.lookup(ctx, k)
	if err != nil {
		return nil, err
	}
	if !found || rec.Kind != facts.IPAM {
		return nil, fmt.Errorf("reservation %s: %w", k, ErrNotRecorded)
	}
	return rec.Addresses, nil
}
