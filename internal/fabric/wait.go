// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weft.dev/weft/internal/core/topology"
)

// Wait returns when everything of the kinds named, or of all kinds, is in the
// kernel that follows from the store's state at some moment after the call, and
// from SetSelf and SetNode before it. If ctx ends before, the error wraps its
// cause and names what is missing.
func (f *Fabric) Wait(ctx context.Context, kinds ...string) error {
	settled := func() bool {
		everything := f.opened.node && f.opened.cluster
		return (everything || len(kinds) > 0) && f.reconciler.Settled(kinds...)
	}
	return f.wait(ctx, settled, f.missing)
}

// WaitRoutes returns when the routes of these keys are as follows from what Wait
// says: in the kernel if they are wanted, and not there if they are not. No other
// object counts. If ctx ends before, the error wraps its cause and says what is in
// the way.
func (f *Fabric) WaitRoutes(ctx context.Context, keys ...topology.RouteKey) error {
	missing := func() error { return f.tables.routes.Settled(keys...) }
	return f.wait(ctx, func() bool { return missing() == nil }, missing)
}

func (f *Fabric) wait(ctx context.Context, settled func() bool, missing func() error) error {
	w := &waiter{settled: settled, done: make(chan struct{})}
	f.mu.Lock()
	f.waiters = append(f.waiters, w)
	f.mu.Unlock()
	f.poke()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		f.mu.Lock()
		f.waiters = slices.DeleteFunc(f.waiters, func(x *waiter) bool { return x == w })
		f.mu.Unlock()
		why := missing()
		if why == nil {
			why = errors.New("it is about to be done")
		}
		return fmt.Errorf("wait for the node's network: %w: %w", context.Cause(ctx), why)
	}
}

// waiter is one call of Wait or WaitRoutes.
type waiter struct {
	settled func() bool // by the Step
	done    chan struct{}
}

// waiting returns the calls that a Step which begins now can fulfil.
func (f *Fabric) waiting() []*waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.waiters)
}

// fulfil ends those calls whose objects are in the kernel.
func (f *Fabric) fulfil(waiting []*waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range waiting {
		if at := slices.Index(f.waiters, w); at >= 0 && w.settled() {
			close(w.done)
			f.waiters = slices.Delete(f.waiters, at, at+1)
		}
	}
}

// missing names what keeps Wait from returning.
func (f *Fabric) missing() error {
	f.mu.Lock()
	placed, synced := f.placed, f.synced
	f.mu.Unlock()
	switch {
	case f.store != nil && !synced:
		return errors.New("the registry is not read completely yet")
	case f.store != nil && !placed:
		return errors.New("this node's address is not known yet")
	}
	const most = 3
	var what []string
	obstacles, pending := 0, 0
	for _, s := range f.Status() {
		if s.Closed {
			return errors.New("what this node's own pods need is not known yet")
		}
		pending += s.Pending
		in := append(s.Failing, s.Awaiting...)
		obstacles += len(in)
		for _, o := range in[:min(len(in), most-len(what))] {
			what = append(what, fmt.Sprintf("%s %s: %v", o.Verb, o.Object, o.Err))
		}
	}
	switch {
	case obstacles > len(what):
		what = append(what, fmt.Sprintf("and %d more", obstacles-len(what)))
	case obstacles == 0:
		what = append(what, fmt.Sprintf("%d operations are pending", pending))
	}
	return errors.New(strings.Join(what, "; "))
}
