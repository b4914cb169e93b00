// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/inspect/forward"
	"weft.dev/weft/internal/report"
)

// forwardingStatus tells what others have put in the way of pods' packets: a
// line for each chain, nothing while there is no subnet of pods.
func forwardingStatus(f *facts.Facts) []report.Subsystem {
	const subsystem = "forwarding"
	subnets, err := podSubnets(f)
	if err == nil && len(subnets) == 0 {
		return nil
	}
	barriers, ferr := forward.Barriers(subnets)
	var rows []report.Subsystem
	for _, b := range barriers {
		rows = append(rows, problem(subsystem, errors.New(b.String())))
	}
	if err = errors.Join(err, ferr); err != nil {
		rows = append(rows, problem(subsystem, err))
	}
	if len(rows) == 0 {
		rows = append(rows, good(subsystem, "nobody's rules drop what pods send or get"))
	}
	return rows
}

// podSubnets returns the subnets that pods of this node have or can get
// addresses of.
func podSubnets(f *facts.Facts) ([]netip.Prefix, error) {
	network, err := engine.RecordedNetwork(f)
	subnets := slices.Clone(network.Pool.Subnets())
	for _, n := range recordedSubnets(f) {
		if n.kind == facts.Veth && !slices.Contains(subnets, n.subnet) {
			subnets = append(subnets, n.subnet)
		}
	}
	return subnets, err
}
