// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/report"
)

// report says what the agent knows and does.
func (a *Agent) report(everything bool) (report.Report, error) {
	in := reportInput{now: time.Now(), configuration: errors.Join(a.configuration.now(), a.late.now()), kinds: a.fabric.Status()}
	if a.cluster != nil {
		var err error
		if in.blocks, err = (*addresses)(a).Blocks(in.now); err != nil {
			return report.Report{}, err
		}
		in.node, in.objects = a.cluster.node, a.cluster.objects
		in.keeper, in.reach = a.cluster.keeper.Status(), a.fabric.Reach()
		in.lost = a.lost.now()
		if why := *a.unready.Load(); why != "" && len(in.keeper.Waiting) == 0 {
			in.keeper.Waiting = []string{why}
		}
	}
	seen := a.seen.Load()
	in.backend, in.underlay = seen.config.Network.Backend.Type, seen.underlay
	if !everything {
		return buildReport(in, everything), nil
	}
	in.routes = a.fabric.Objects("routes")
	err := a.store.View(context.Background(), func(f *facts.Facts) error {
		in.pods = f.Records()
		return nil
	})
	return buildReport(in, everything), err
}
