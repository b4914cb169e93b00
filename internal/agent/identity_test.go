// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"testing"

	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/core/topology"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The keeper is told the node's own networks, so that it claims no block of
// them, and they follow the underlay.
func TestIdentityHasNetworks(t *testing.T) {
	a := recording(t)
	for _, c := range []struct {
		underlay []topology.Underlay
		want     []lease.Network
	}{
		{nil, nil},
		{
			[]topology.Underlay{{Addr: netip.MustParsePrefix("198.18.0.11/24"), Dev: "eth0"}},
			[]lease.Network{{Prefix: netip.MustParsePrefix("198.18.0.0/24"), Dev: "eth0"}},
		},
		{
			[]topology.Underlay{
				{Addr: netip.MustParsePrefix("198.18.9.11/32"), Dev: "lo"},
				{Addr: netip.MustParsePrefix("fd00:198::11/64"), Dev: "eth1"},
			},
			[]lease.Network{
				{Prefix: netip.MustParsePrefix("198.18.9.11/32"), Dev: "lo"},
				{Prefix: netip.MustParsePrefix("fd00:198::/64"), Dev: "eth1"},
			},
		},
	} {
		a.inputs.underlay = c.underlay
		if diff := cmp.Diff(c.want, a.inputs.identity().Networks, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("underlay %v (-want +got):\n%s", c.underlay, diff)
		}
	}
}
