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
// unrecorded is the delegate to call when there is no record, because the
// specification demands that DEL reaches it in any case; nil without one.
//
// With a Reaper, Del returns once the release is recorded; interface and
// address follow within one batch. Until then the address is not free.
func (e *Engine) Del(ctx context.Context, k attach.Key, unrecorded *facts.Delegate) error {
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
		return e.remove(ctx, rec)
	default:
		return e.delUnrecorded(ctx, k, unrecorded)
	}
}

// delUnrecorded serves DEL without a record: it was served before, ADD never
// got as far, or the state directory was lost.
func (e *Engine) delUnrecorded(ctx context.Context, k attach.Key, d *facts.Delegate) error {
	err := e.Kernel.Detach(k.HostIfname())
	if d != nil {
		err = errors.Join(err, e.Delegates.Release(ctx, k, *d))
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
func (e *Engine) remove(ctx context.Context, rec facts.Record) error {
	if err := e.beginRelease(ctx, rec); err != nil {
		return err
	}
	var err error
	if rec.Kind == facts.Veth {
		err = e.removeFromKernel(ctx, rec)
	}
	return errors.Join(err, e.finish(ctx, rec, err == nil))
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
func (e *Engine) finish(ctx context.Context, rec facts.Record, detached bool) error {
	d, err := rec.Detail()
	if err != nil {
		return err
	}
	if d.Delegate != nil {
		if err := e.Delegates.Release(ctx, rec.Key, *d.Delegate); err != nil {
			return fmt.Errorf("release the addresses of %s: %w", rec.Key, err)
		}
	}
	if !detached {
		return nil
	}
	entry, err := facts.EncodeReleased(e.now(), rec.Key)
	return e.append1(ctx, entry, err)
}
