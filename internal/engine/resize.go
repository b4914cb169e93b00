// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/kernel"
)

// Resize gives every attachment whose interface has the MTU from the MTU to,
// both in bytes, and returns how many. An attachment with another MTU was given
// it by its configuration, and keeps it.
func (e *Engine) Resize(ctx context.Context, from, to int) (int, error) {
	owned, err := e.Kernel.Owned()
	if err != nil {
		return 0, err
	}
	mtu := make(map[string]int, len(owned))
	for _, o := range owned {
		mtu[o.HostIfname] = o.MTU
	}
	var records []facts.Record
	err = e.Store.View(ctx, func(f *facts.Facts) error {
		for rec := range f.Each {
			if rec.Kind == facts.Veth && rec.Phase == facts.Complete && mtu[rec.Key.HostIfname()] == from {
				records = append(records, rec)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, rec := range records {
		done, err := e.resize(rec, to)
		if err != nil {
			errs = append(errs, fmt.Errorf("set MTU of %s: %w", rec.Key, err))
		}
		if done {
			n++
		}
	}
	return n, errors.Join(errs...)
}

func (e *Engine) resize(rec facts.Record, mtu int) (done bool, err error) {
	d, err := rec.Detail()
	if err != nil {
		return false, err
	}
	ns, err := kernel.OpenNetns(d.Netns)
	if err != nil {
		return false, nil // the sandbox is going away
	}
	defer ns.Close()
	if facts.NetnsID(ns.ID()) != d.NetnsID {
		return false, nil
	}
	err = e.Kernel.SetPodMTU(ns, rec.Key.Ifname, rec.Key.HostIfname(), mtu)
	return err == nil, err
}
