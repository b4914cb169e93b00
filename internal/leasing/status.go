// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"errors"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
)

// Status is the state after the last pass.
type Status struct {
	Held    []cluster.Lease // leases that addresses are given from
	Waiting []string        // why the node lacks what it needs; nil: it lacks nothing
	Since   time.Time       // of this state (nothing lacking, or something)
	Err     error           // of the registry or of Addresses, in the last pass
	ErrAt   time.Time       // of the last Err; stays when it is over
	LastErr error
}

// Status returns the state after the last pass. It may be called at any time.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.status
	s.Held, s.Waiting = slices.Clone(s.Held), slices.Clone(s.Waiting)
	return s
}

func (k *Keeper) report(p *pass) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.status
	if s.Since.IsZero() || (len(s.Waiting) == 0) != (len(p.waiting) == 0) {
		s.Since = p.now
	}
	s.Held, s.Waiting = k.served, p.waiting
	s.Err = errors.Join(append(p.errs, k.view.err)...)
	if s.Err != nil {
		s.ErrAt, s.LastErr = p.now, s.Err
	}
}
