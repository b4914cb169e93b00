// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/report"
)

// runtimeStatus says what the container runtime has been told.
func (a *Agent) runtimeStatus() *report.Subsystem {
	c := a.seen.Load().config.CNI
	if c == nil {
		return nil
	}
	row := report.Subsystem{Subsystem: "runtime", State: report.Good, Detail: c.ConfFile + " is in place"}
	if foreign := a.foreign.Load(); foreign != nil && len(*foreign) > 0 {
		row.Detail += "; not used are " + strings.Join(*foreign, ", ")
	}
	switch err := cmp.Or(a.rivals.now(), a.unproclaimed.now()); {
	case err != nil:
		row.State, row.Detail = report.Bad, err.Error()
	case !a.proclaimed.Load():
		row.State, row.Detail = report.Pending, "not told of this network yet: that is done when pods can be attached"
	}
	return &row
}

// report says what the agent knows and does.
func (a *Agent) report(everything bool) (report.Report, error) {
	in := reportInput{
		now: time.Now(), configuration: errors.Join(a.configuration.now(), a.late.now()),
		runtime: a.runtimeStatus(), kinds: a.fabric.Status(),
	}
	if a.cluster != nil {
		var err error
		if in.blocks, err = (*addresses)(a).Blocks(in.now); err != nil {
			return report.Report{}, err
		}
		in.node, in.objects = a.cluster.node, a.cluster.objects
		in.keeper, in.reach = a.cluster.keeper.Status(), a.fabric.Reach()
		in.lost, in.poolless = a.lost.now(), a.poolless.now()
		if in.keeper.Err == nil {
			in.keeper.Err = a.leftover.now()
		}
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
