// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
)

// member is a node that is known or has leases, with what its leases have in
// common: one FDB entry for each VXLAN device by which any of them is reached.
type member struct {
	origin string // "Node <name>"
	known  bool
	mac    attach.MAC
	leases []*tracked                // in no order
	told   [len(families)]netip.Addr // by Updates: destinations of FDB entries; zero: none
	marked bool
}

func (mem *member) name() string { return mem.origin[len(nodeOrigin):] }

// destinations returns where frames for the member go, by the family of the
// device. While its leases disagree, as they do when an address changes, the
// youngest of those that use the device decides.
func (mem *member) destinations() (dst [len(families)]netip.Addr) {
	for _, f := range families {
		var youngest *tracked
		for _, t := range mem.leases {
			if t.told.uses(f) && (youngest == nil || older(&youngest.entry, &t.entry) < 0) {
				youngest = t
			}
		}
		if youngest != nil {
			dst[f] = youngest.addrs[f]
		}
	}
	return dst
}

// member returns the member of that name, a new one if there is none.
func (m *Map) member(name string) *member {
	mem := m.members[name]
	if mem == nil {
		mem = &member{origin: nodeOrigin + name, mac: cluster.VTEPMAC(name)}
		m.members[mem.name()] = mem
	}
	return mem
}

func (m *Map) markMember(mem *member) {
	if !mem.marked {
		mem.marked = true
		m.changedMembers = append(m.changedMembers, mem)
	}
}
