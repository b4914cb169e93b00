// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
)

// Mend puts back what somebody took from the host's side of complete
// attachments, such as a network manager that flushed routes, and returns
// those that it mended. One that was adopted is left alone: what it should have
// is not known.
func (e *Engine) Mend(ctx context.Context) ([]attach.Key, error) {
	var keys []attach.Key
	err := e.Store.View(ctx, func(f *facts.Facts) error {
		for rec := range f.Each {
			if rec.Kind == facts.Veth && rec.Phase == facts.Complete {
				keys = append(keys, rec.Key)
			}
		}
		return nil
	})
	var mended []attach.Key
	errs := []error{err}
	for _, k := range keys {
		n, err := e.mend(ctx, k)
		if err != nil {
			errs = append(errs, fmt.Errorf("mend attachment %s: %w", k, err))
		}
		if n > 0 {
			mended = append(mended, k)
		}
	}
	return mended, errors.Join(errs...)
}

// mend does so for one attachment, unless somebody is at work on it.
func (e *Engine) mend(ctx context.Context, k attach.Key) (int, error) {
	lockCtx, cancel := context.WithTimeout(ctx, tryLock)
	defer cancel()
	unlock, err := e.Store.LockKey(lockCtx, k.String())
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		return 0, err
	}
	defer unlock()
	rec, found, err := e.lookup(ctx, k)
	if err != nil || !found || rec.Phase != facts.Complete {
		return 0, err
	}
	d, err := rec.Detail()
	if err != nil || d.Adopted {
		return 0, err
	}
	plan, err := attach.NewPlan(d.Spec(k, e.Instance))
	if err != nil {
		return 0, err
	}
	return e.Kernel.Mend(plan)
}
