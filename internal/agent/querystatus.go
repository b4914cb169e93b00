// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"time"

	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/reconcile"
	"weft.dev/weft/internal/report"
)

func configurationStatus(err error) report.Subsystem {
	row := report.Subsystem{Subsystem: "configuration", State: report.Good, Detail: "in effect"}
	if err != nil {
		row.State, row.Detail = report.Bad, "not in effect, the previous one is: "+err.Error()
	}
	return row
}

func registryStatus(s snapshot) report.Subsystem {
	row := report.Subsystem{
		Subsystem: "registry", State: report.Good, Since: s.since,
		Detail: fmt.Sprintf("%s, %s, %s, %s; revision %d", counted(len(s.nodes), "node"), counted(len(s.pools), "pool"),
			counted(len(s.leases), "lease"), counted(s.pods, "pod"), s.revision),
	}
	switch {
	case s.err != nil:
		row.State = report.Bad
		row.Detail = "unreachable: " + s.err.Error() + "; what is known stays in use, no block is taken or given back; known: " + row.Detail
	case !s.synced:
		row.State = report.Pending
		row.Detail = "not everything has arrived yet, so nothing is changed for the cluster's sake; so far: " + row.Detail
	}
	return row
}

func poolStatus(s snapshot, poolless error) report.Subsystem {
	switch {
	case poolless != nil:
		return report.Subsystem{Subsystem: "pools", State: report.Bad, Detail: "there is no IPPool: " + poolless.Error()}
	case len(s.pools) == 0:
		return report.Subsystem{Subsystem: "pools", State: report.Idle, Detail: "no IPPool that can be used"}
	}
	var list []string
	for _, p := range s.pools {
		text := p.Name
		for _, r := range p.Ranges {
			text += fmt.Sprintf(" %s in blocks of /%d", r.CIDR, r.BlockBits)
		}
		list = append(list, text)
	}
	return report.Subsystem{Subsystem: "pools", State: report.Good, Detail: strings.Join(list, "; ")}
}

func underlayStatus(in reportInput) report.Subsystem {
	var list []string
	for _, u := range in.underlay {
		list = append(list, fmt.Sprintf("%s dev %s mtu %d", u.Addr, u.Dev, u.MTU))
	}
	place := strings.Join(list, ", ")
	row := report.Subsystem{Subsystem: "underlay", State: report.Good, Detail: fmt.Sprintf("%s; backend %s", place, in.backend)}
	if in.lost != nil {
		row.State, row.Detail = report.Bad, in.lost.Error()
		if place != "" {
			row.Detail += "; still used: " + place
		}
	}
	return row
}

func leaseStatus(in reportInput) report.Subsystem {
	k := in.keeper
	var held []string
	for _, l := range k.Held {
		held = append(held, l.Subnet.String())
	}
	row := report.Subsystem{Subsystem: "leases", State: report.Good, Since: k.Since, Detail: "held: " + strings.Join(held, ", ")}
	if len(held) == 0 {
		row.State, row.Detail = report.Pending, "none held"
	}
	if k.LastErr != nil {
		row.LastError, row.LastErrorAt = k.LastErr.Error(), k.ErrAt
	}
	if len(k.Waiting) > 0 {
		row.State = report.Bad
		row.Detail = "waiting: " + strings.Join(k.Waiting, "; ") + "; " + row.Detail
	} else if k.Err != nil {
		row.State = report.Bad
	}
	return row
}

// peerStatus counts how the leases of other nodes are reached.
func peerStatus(in reportInput) report.Subsystem {
	ways, nodes := map[topology.Way]int{}, map[string]bool{}
	for _, r := range in.reach {
		if r.Way == topology.Local || r.Node == in.node {
			continue
		}
		ways[r.Way]++
		nodes[r.Node] = true
	}
	detail := fmt.Sprintf("%s: %s native, %d by VXLAN, %d unreachable", counted(len(nodes), "node"),
		counted(ways[topology.ByRoute], "lease"), ways[topology.ByVXLAN], ways[topology.Unreachable])
	return report.Subsystem{Subsystem: "peers", State: report.Good, Detail: detail}
}

// kindStatus tells how the reconciler fares with one kind of kernel object.
func kindStatus(k reconcile.Status, now time.Time) report.Subsystem {
	row := report.Subsystem{
		Subsystem: "kernel " + k.Kind, State: report.Good, Since: k.InSyncSince, Pending: k.Pending,
		Detail: fmt.Sprintf("%d in sync; read %s ago in %s", k.Desired, now.Sub(k.LastResync).Round(time.Second), k.ResyncTook.Round(time.Millisecond)),
	}
	if k.LastError != nil {
		row.LastError, row.LastErrorAt = k.LastError.Error(), k.LastErrorAt
	}
	switch {
	case k.Closed:
		row.State, row.Detail = report.Pending, "untouched until the registry has delivered everything and the underlay is known"
	case len(k.Failing) > 0:
		row.State = report.Bad
		row.Detail = failing(k.Failing[0], now)
		if more := len(k.Failing) - 1; more > 0 {
			row.Detail += fmt.Sprintf("; and %d more", more)
		}
		// The detail says it already.
		if k.LastError != nil && k.LastError.Error() == k.Failing[0].Err.Error() {
			row.LastError, row.LastErrorAt = "", time.Time{}
		}
	case len(k.Awaiting) > 0:
		row.State, row.Detail = report.Pending, failing(k.Awaiting[0], now)
		if more := len(k.Awaiting) - 1; more > 0 {
			row.Detail += fmt.Sprintf("; and %d more", more)
		}
	case k.InSyncSince.IsZero():
		row.State, row.Detail = report.Pending, fmt.Sprintf("%d of %d to be done", k.Pending, max(k.Desired, k.Pending))
	}
	return row
}

func failing(f reconcile.Failing, now time.Time) string {
	text, what := f.Err.Error(), string(f.Verb)+" "+f.Object
	if !strings.HasPrefix(text, what) { // many errors say so themselves
		text = what + ": " + text
	}
	return fmt.Sprintf("%s; %s since %s, again in %s", text, counted(f.Attempts, "attempt"),
		f.Since.UTC().Format(time.RFC3339), max(0, f.Next.Sub(now)).Round(time.Second))
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
