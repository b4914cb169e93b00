// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Wait returns when everything of the kinds named, or of all kinds, is in the
// kernel that follows from the store's state at some moment after the call, and
// from SetSelf and SetNode before it. If ctx ends before, the error wraps its
// cause and names what is missing.
func (f *Fabric) Wait(ctx context.Context, kinds ...string) error {
	w := &waiter{kinds: kinds, done: make(chan struct{})}
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
		return fmt.Errorf("wait for the node's network: %w: %w", context.Cause(ctx), f.missing())
	}
}

// waiter is one call of Wait.
type waiter struct {
	kinds []string // none: all
	done  chan struct{}
}

// waiting returns the calls of Wait that a Step which begins now can fulfil.
func (f *Fabric) waiting() []*waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.waiters)
}

// fulfil ends those calls of Wait whose kinds are in the kernel.
func (f *Fabric) fulfil(waiting []*waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	everything := f.opened.node && f.opened.cluster
	for _, w := range waiting {
		if len(w.kinds) == 0 && !everything {
			continue
		}
		if at := slices.Index(f.waiters, w); at >= 0 && f.reconciler.Settled(w.kinds...) {
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
	failing, pending := 0, 0
	for _, s := range f.Status() {
		if s.Closed {
			return errors.New("what this node's own pods need is not known yet")
		}
		pending += s.Pending
		failing += len(s.Failing)
		for _, o := range s.Failing[:min(len(s.Failing), most-len(what))] {
			what = append(what, fmt.Sprintf("%s %s: %v", o.Verb, o.Object, o.Err))
		}
	}
	switch {
	case failing > len(what):
		what = append(what, fmt.Sprintf("and %d more", failing-len(what)))
	case failing == 0:
		what = append(what, fmt.Sprintf("%d operations are pending", pending))
	}
	return errors.New(strings.Join(what, "; "))
}
