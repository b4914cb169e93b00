// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync"

	"weft.dev/weft/internal/core/attach"
)

// Reaper removes interfaces behind DEL's back. Deleting one veth pair takes
// the kernel an RCU grace period, some 20 ms in which it does nothing; a
// hundred deleted together take the same. So DEL records the release, hands
// the key over, and returns; the Reaper takes all that has gathered and
// deletes it at once.
//
// It holds each key's lock until the record has ended: a repeated DEL, or an
// ADD for the same key, waits for it.
type Reaper struct {
	Failed func(attach.Key, error) // told of each attachment that could not be removed; garbage collection tries again

	mu     sync.Mutex
	queue  []doomed
	next   chan struct{} // closed when what is queued now has been removed; nil: nothing is
	under  chan struct{} // the same for the batch under way
	closed bool
	wake   chan struct{}
	done   chan struct{}
}

type doomed struct {
	key    attach.Key
	unlock func()
}

// NewReaper returns a Reaper; Run must be called for it to work.
func NewReaper(failed func(attach.Key, error)) *Reaper {
	return &Reaper{Failed: failed, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

func (r *Reaper) enqueue(d doomed) {
	r.mu.Lock()
	if r.closed {
		// The record says Releasing: whoever starts next finishes it.
		r.mu.Unlock()
		d.unlock()
		return
	}
	r.queue = append(r.queue, d)
	if r.next == nil {
		r.next = make(chan struct{})
	}
	r.mu.Unlock()
	r.signal()
}

// drain waits until what has been handed over so far is removed and its
// addresses are free. It reports false where there was nothing, or ctx ended.
func (r *Reaper) drain(ctx context.Context) bool {
	r.mu.Lock()
	last := r.next
	if last == nil {
		last = r.under
	}
	r.mu.Unlock()
	if last == nil {
		return false
	}
	select {
	case <-last:
		return true
	case <-ctx.Done():
		return false
	}
}

// Run serves the queue until Close, and finishes what is in it then.
func (r *Reaper) Run(e *Engine) {
	defer close(r.done)
	for {
		<-r.wake
		batch, closed := r.begin()
		if len(batch) > 0 {
			r.reap(e, batch)
			r.finish()
		} else if closed {
			return
		}
		if closed {
			r.signal()
		}
	}
}

func (r *Reaper) begin() (batch []doomed, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch, r.queue = r.queue, nil
	r.under, r.next = r.next, nil
	return batch, r.closed
}

func (r *Reaper) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.under)
	r.under = nil
}

func (r *Reaper) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Close lets Run finish the queue and waits for it.
func (r *Reaper) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.signal()
	<-r.done
}

func (r *Reaper) reap(e *Engine, batch []doomed) {
	ctx := context.Background()
	names := make([]string, 0, len(batch))
	for _, d := range batch {
		names = append(names, d.key.HostIfname())
	}
	together := e.Kernel.DetachAll(names)
	for _, d := range batch {
		if err := r.end(ctx, e, d.key, together != nil); err != nil {
			r.Failed(d.key, errors.Join(together, err))
		}
		d.unlock()
	}
}

// end finishes one record. After a failed batch each interface is removed by
// itself, so that one that cannot be removed does not hold up the others.
func (r *Reaper) end(ctx context.Context, e *Engine, k attach.Key, single bool) error {
	rec, found, err := e.lookup(ctx, k)
	if err != nil || !found {
		return err
	}
	if single {
		return e.remove(ctx, rec, nil)
	}
	return e.finish(ctx, rec, nil, true)
}
