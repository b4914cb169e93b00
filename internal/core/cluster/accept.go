// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// AcceptPools returns the pools that may be used, by name, and why the others
// may not. Of two pools that overlap the older one stays: its addresses are in
// use. Of the same age, or where the age is not known, it is the first by name.
func AcceptPools(pools []Pool) (accepted []Pool, rejected []Rejection) {
	byAge := slices.SortedFunc(slices.Values(pools), func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	for _, p := range byAge {
		if reason := overlapOf(p, accepted); reason != "" {
			rejected = append(rejected, Rejection{Object: "IPPool " + p.Name, Reason: reason})
			continue
		}
		accepted = append(accepted, p)
	}
	slices.SortFunc(accepted, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	return accepted, rejected
}

// overlapOf says which accepted pool p overlaps; "" if none.
func overlapOf(p Pool, accepted []Pool) string {
	for _, q := range accepted {
		for _, mine := range p.Ranges {
			for _, theirs := range q.Ranges {
				if !mine.CIDR.Overlaps(theirs.CIDR) {
					continue
				}
				first := "older"
				if p.Created == q.Created {
					first = "the first by name"
				}
				return fmt.Sprintf("%s overlaps %s of IPPool %s, which is %s; give it another range", mine.CIDR, theirs.CIDR, q.Name, first)
			}
		}
	}
	return ""
}
