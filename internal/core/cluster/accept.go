// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// AcceptPools returns the pools that may be used, by name, and why the others
// may not. Of two pools that overlap the one that leases are of stays: its
// addresses are in use. Otherwise it is the older one, and of the same age, or
// where the age is not known, the first by name.
func AcceptPools(pools []Pool, leases iter.Seq[Lease]) (accepted []Pool, rejected []Rejection) {
	leased := map[string]bool{}
	if len(pools) > 1 {
		for l := range leases {
			leased[l.Pool] = true
		}
	}
	rank := func(p Pool) int {
		if leased[p.Name] {
			return 0
		}
		return 1
	}
	inOrder := slices.SortedFunc(slices.Values(pools), func(a, b Pool) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	for _, p := range inOrder {
		if reason := overlapOf(p, accepted, leased); reason != "" {
			rejected = append(rejected, Rejection{Object: "IPPool " + p.Name, Reason: reason})
			continue
		}
		accepted = append(accepted, p)
	}
	slices.SortFunc(accepted, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	return accepted, rejected
}

// overlapOf says which accepted pool p overlaps; "" if none.
func overlapOf(p Pool, accepted []Pool, leased map[string]bool) string {
	for _, q := range accepted {
		for _, mine := range p.Ranges {
			for _, theirs := range q.Ranges {
				if !mine.CIDR.Overlaps(theirs.CIDR) {
					continue
				}
				first := "older"
				switch {
				case leased[q.Name] && !leased[p.Name]:
					first = "in use"
				case p.Created == q.Created:
					first = "the first by name"
				}
				return fmt.Sprintf("%s overlaps %s of IPPool %s, which is %s; give it another range", mine.CIDR, theirs.CIDR, q.Name, first)
			}
		}
	}
	return ""
}
