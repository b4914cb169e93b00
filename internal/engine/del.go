// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
)

// Del removes an attachment and frees what it held. It needs no namespace: the
// interface is removed from the host's side. It succeeds for an attachment
// that does not exist, any number of times.
//
// delegate executes the DEL of the IPAM plugin that the call's configuration
// names, nil where it names none. It is called with or without a record,
// because the specification demands that DEL reaches the delegate; without it
// the delegate of the record is called.
//
// With a Reaper, Del returns once the release is recorded; interface and
// address follow within one batch. Until then the address is not free.
func (e *Engine) Del(ctx context.Context, k attach.Key, delegate func(context.Context) error) error {
	unlock, err := e.Store.LockKey(ctx, k.String())
	if err != nil {
		return err
	}
	rec, found, err := e.lookup(ctx, k)
	if err == nil && found && e.Reaper != nil && rec.Kind == facts.Veth {
		if err = e.beginRelease(ctx, rec); err == nil {
			e.Reaper.enqueue(doomed{key: k, unlock: unlock})
			return nil
		}
	}
	defer unlock()
	switch {
	case err != nil:
		return err
	case found:
		return e.remove(ctx, rec, delegate)
	default:
		return e.delUnrecorded(ctx, k, delegate)
	}
}

// delUnrecorded serves DEL without a record: it was served before, ADD never
// got as far, or the state directory was lost.
func (e *Engine) delUnrecorded(ctx context.Context, k attach.Key, delegate func(context.Context) error) error {
	err := e.Kernel.Detach(k.HostIfname())
	if delegate != nil {
		err = errors.Join(err, delegate(ctx))
	}
	return err
}

// beginRelease records that the attachment is on its way out.
func (e *Engine) beginRelease(ctx context.Context, rec facts.Record) error {
	if rec.Phase == facts.Releasing {
		return nil
	}
	entry, err := facts.EncodeReleasing(e.now(), rec.Key)
	return e.append1(ctx, entry, err)
}

// remove takes a recorded attachment out of the kernel and ends its record.
// Every step is tried even when an earlier one fails; the record ends only
// when all succeeded, so that the next DEL or garbage collection goes on.
// delegate is as in Del.
func (e *Engine) remove(ctx context.Context, rec facts.Record, delegate func(context.Context) error) error {
	if err := e.beginRelease(ctx, rec); err != nil {
		return err
	}
	var err error
	if rec.Kind == facts.Veth {
		err = e.removeFromKernel(ctx, rec)
	}
	return errors.Join(err, e.finish(ctx, rec, delegate, err == nil))
}

// removeFromKernel removes the interface and, with the last of a network, the
// node's objects: side by side, because each waits for an RCU grace period.
func (e *Engine) removeFromKernel(ctx context.Context, rec facts.Record) error {
	if e.Node != nil {
		return e.Kernel.Detach(rec.Key.HostIfname())
	}
	node := make(chan error)
	go func() { node <- e.removeNodeAfter(ctx, rec) }()
	err := e.Kernel.Detach(rec.Key.HostIfname())
	return errors.Join(err, <-node)
}

// finish releases what a delegate granted and, if the interface is gone, ends
// the record.
func (e *Engine) finish(ctx context.Context, rec facts.Record, delegate func(context.Context) error, detached bool) error {
	d, err := rec.Detail()
	if err != nil {
		return err
	}
	if delegate == nil && d.Delegate != nil {
		delegate = func(ctx context.Context) error { return e.Delegates.Release(ctx, rec.Key, *d.Delegate) }
	}
	if delegate != nil {
		if err := delegate(ctx); err != nil {
			return fmt.Errorf("release the addresses of %s: %w", rec.Key, err)
		}
	}
	if !detached {
		return nil
	}
	// Of what was complete, Detach has forgotten the flows. Somebody who was
	// killed may have unmapped the ports and not come to this.
	if ports, err := attach.Mappings(d.Ports, d.Addresses); err == nil && len(ports) > 0 && rec.Phase != facts.Complete {
		if err := e.Kernel.ForgetPorts(ports); err != nil {
			return err
		}
	}
	entry, err := facts.EncodeReleased(e.now(), rec.Key)
	return e.append1(ctx, entry, err)
}
