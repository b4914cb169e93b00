// SPDX-License-Identifier: Apache-2.0

package wish

import (
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
)

// Holders says which pod a claim keeps an address for, or a lease of the address
// is of, as "namespace/name"; several: of which it is empty, and nobody's.
type Holders map[netip.Addr]string

// HoldersOf returns who holds what. It looks at all claims and leases; the
// result holds as long as they are the same.
func HoldersOf(claims map[string]cluster.Claim, leases map[string]cluster.Lease) Holders {
	h := Holders{}
	for _, c := range claims {
		for _, a := range c.Addresses {
			h.add(a, c.Key())
		}
	}
	for _, l := range leases {
		if l.Pod != "" && l.Subnet.IsSingleIP() {
			h.add(l.Subnet.Addr(), l.Pod)
		}
	}
	return h
}

func (h Holders) add(a netip.Addr, pod string) {
	if other, held := h[a]; held && other != pod {
		pod = ""
	}
	h[a] = pod
}

// Avoid reports whether a pod must not get the address: another one holds it, or
// it does itself and the address is not wanted (Answer.Addresses). A lease that
// was left behind elsewhere would lead past the pod. pod is "namespace/name".
func (h Holders) Avoid(pod string, wanted []netip.Addr) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		holder, held := h[a]
		return held && (holder != pod || holder == "" || !slices.Contains(wanted, a))
	}
}
