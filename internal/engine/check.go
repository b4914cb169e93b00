// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/kernel"
)

// DriftError says how the kernel differs from what ADD made.
type DriftError struct {
	Key         attach.Key
	Differences []kernel.Difference
}

func (e *DriftError) Error() string {
	parts := make([]string, 0, len(e.Differences))
	for _, d := range e.Differences {
		parts = append(parts, d.String())
	}
	return fmt.Sprintf("attachment %s has drifted: %s; restart the pod to repair it", e.Key, strings.Join(parts, "; "))
}

// Expected adjusts the plan that ADD made to what the runtime believes now:
// later plugins of a chain may have changed what is in the last result.
type Expected func(attach.Plan) (attach.Plan, kernel.CompareOptions)

// Check compares the kernel with the recorded attachment. It returns an error
// wrapping ErrNotRecorded, or a *DriftError that lists every difference.
func (e *Engine) Check(ctx context.Context, k attach.Key, ns *kernel.Netns, want Expected) error {
	unlock, err := e.Store.LockKey(ctx, k.String())
	if err != nil {
		return err
	}
	defer unlock()

	var d facts.Detail
	var node kernel.Node
	err = e.Store.View(ctx, func(f *facts.Facts) error {
		rec, found := f.Get(k)
		if !found || rec.Phase != facts.Complete {
			return fmt.Errorf("attachment %s: %w as complete", k, ErrNotRecorded)
		}
		var err error
		if d, err = rec.Detail(); err != nil {
			return err
		}
		node, err = nodeOf(f, rec, d)
		return err
	})
	if err != nil {
		return err
	}
	plan, err := attach.NewPlan(d.Spec(k, e.Instance))
	if err != nil {
		return err
	}
	plan, options := want(plan)
	differences, err := e.Kernel.Compare(ns, plan, options)
	if err != nil {
		return err
	}
	if e.Node != nil {
		node = e.Node()
	}
	more, err := e.Kernel.CompareNode(node)
	if err != nil {
		return err
	}
	differences = append(differences, more...)
	if len(differences) > 0 {
		return &DriftError{Key: k, Differences: differences}
	}
	return nil
}
