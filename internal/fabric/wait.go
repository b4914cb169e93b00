// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Wait returns when everything is in the kernel that follows from the store's
// state at some moment after the call, and from SetSelf and SetNode before it.
// If ctx ends before, the error wraps its cause and names what is missing.
func (f *Fabric) Wait(ctx context.Context) error {
	f.mu.Lock()
	f.tickets++
	ticket := f.tickets
	f.mu.Unlock()
	f.poke()
	for {
		f.mu.Lock()
		reached, arrived := f.reached, f.arrived
		f.mu.Unlock()
		if reached >= ticket {
			return nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return fmt.Errorf("wait for the node's network: %w: %w", context.Cause(ctx), f.missing())
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
