// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// warmUp is how many pods each cluster starts before the first round, so that
// caches of the machine and of the clusters are warm.
const warmUp = 5

// measure fills in the results. Of the clusters it leaves nothing, or, if
// something broke, their logs.
func measure(ctx context.Context, image string, r *results) (err error) {
	dir, err := os.MkdirTemp("", "weft-bench-cluster-")
	if err != nil {
		return err
	}
	weft, reference := newWeft(dir, image), newReference(dir)
	defer func() {
		err = errors.Join(err, weft.down(), reference.down())
		if err == nil || ctx.Err() != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		} else {
			err = fmt.Errorf("%w\nlogs are in %s", err, filepath.Join(dir, "*", "logs"))
		}
	}()
	// One after the other: side by side each would take twice the time.
	for _, c := range []*contender{weft, reference} {
		if err := c.up(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	if err := measureRounds(ctx, weft, reference, r); err != nil {
		return err
	}
	if err := reference.down(); err != nil {
		return err
	}
	r.Memory, err = measureMemory(ctx, weft, r.Extent)
	return err
}

// measureRounds lets both take turns.
func measureRounds(ctx context.Context, weft, reference *contender, r *results) error {
	turns := []*contender{weft, reference}
	for i := range r.Extent.Rounds + 1 {
		pods := r.Extent.Pods
		if i == 0 {
			pods = warmUp
		}
		for _, c := range turns {
			if err := rest(ctx); err != nil {
				return err
			}
			one, err := c.round(ctx, fmt.Sprintf("r%d", i), pods)
			if err != nil {
				return fmt.Errorf("%s: round %d: %w", c.Name, i, err)
			}
			progress("round %d of %d: %s: %s", i, r.Extent.Rounds, c.Name, one)
			switch {
			case i == 0:
			case c == weft:
				r.Weft = append(r.Weft, one)
			default:
				r.Reference = append(r.Reference, one)
			}
		}
		slices.Reverse(turns)
	}
	return nil
}

// restTime is for what a node does behind the scenes when pods are gone: it
// removes sandboxes and directories.
const restTime = 4 * time.Second

func rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(restTime):
		return nil
	}
}
