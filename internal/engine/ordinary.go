// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"weft.dev/weft/internal/core/ipam"
)

// Ordinary returns the network for a pod that asks for nothing: without the
// ranges that are for those who ask.
func (n Network) Ordinary() Network {
	if len(n.OnRequest) == 0 {
		return n
	}
	var sets []ipam.Set
	for _, set := range n.Pool.Sets {
		set = slices.DeleteFunc(slices.Clone(set), func(r ipam.Range) bool { return slices.Contains(n.OnRequest, r.Subnet) })
		if len(set) > 0 {
			sets = append(sets, set)
		}
	}
	n.Pool = ipam.Pool{Sets: sets}
	return n
}
