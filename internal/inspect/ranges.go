// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/report"
)

// Range is the use of one set of ranges.
type Range struct {
	Network string `json:"network"` // "(agent)": the network of this node's agent
	Ranges  string `json:"ranges"`
	Total   uint64 `json:"total"`
	Used    int    `json:"used"`
	Free    uint64 `json:"free"`
	Cooling int    `json:"cooling"` // of the free ones: released lately
}

// Header implements view.Row.
func (Range) Header() []string {
	return []string{"NETWORK", "RANGES", "TOTAL", "USED", "FREE", "COOLING"}
}

// Cells implements view.Row.
func (r Range) Cells() []string {
	return []string{r.Network, r.Ranges, report.Count(r.Total), fmt.Sprint(r.Used), report.Count(r.Free), fmt.Sprint(r.Cooling)}
}

// Ranges returns how full each set is: of the agent's network, and of every
// network that thin plugins and weft-ipam have records of. Those keep their
// ranges in their own configuration, so the subnets of the records stand for
// them.
func Ranges(f *facts.Facts, now time.Time) ([]Range, error) {
	agent, err := engine.RecordedNetwork(f)
	if err != nil {
		return nil, err
	}
	var rows []Range
	for _, set := range agent.Pool.Sets {
		rows = append(rows, rangeRow("(agent)", set, f.Usage(facts.Veth, ""), now, agent.Cooldown))
	}
	known := agent.Pool.Subnets()
	for _, n := range recordedSubnets(f) {
		if slices.Contains(known, n.subnet) {
			continue
		}
		r, err := ipam.NewRange(ipam.Range{Subnet: n.subnet})
		if err != nil {
			return nil, err
		}
		rows = append(rows, rangeRow(n.network, ipam.Set{r}, f.Usage(n.kind, n.network), now, DefaultCooldown))
	}
	return rows, nil
}

// DefaultCooldown stands for the cool-down of networks whose configuration is
// not in the journal.
const DefaultCooldown = 30 * time.Second

func rangeRow(network string, set ipam.Set, u *ipam.Usage, now time.Time, cooldown time.Duration) Range {
	st := u.Stats(set, now.UnixNano(), int64(cooldown))
	return Range{Network: network, Ranges: set.String(), Total: st.Total, Used: st.Used, Free: st.Free, Cooling: st.Cooling}
}

type networkSubnet struct {
	network string
	kind    facts.Kind
	subnet  netip.Prefix
}

func recordedSubnets(f *facts.Facts) []networkSubnet {
	var subnets []networkSubnet
	for _, rec := range f.Records() {
		d, err := rec.Detail()
		if err != nil {
			continue
		}
		for _, a := range d.Addresses {
			n := networkSubnet{rec.Key.Network, rec.Kind, a.Subnet}
			if a.Subnet.IsValid() && !slices.Contains(subnets, n) {
				subnets = append(subnets, n)
			}
		}
	}
	return subnets
}

// Address is one address that is used or was released.
type Address struct {
	Address netip.Addr `json:"address"`
	State   string     `json:"state"`           // used, releasing, cooling, released
	Owner   string     `json:"owner,omitempty"` // key of the attachment
	Since   time.Time  `json:"since,omitzero"`  // of the release
}

// Header implements view.Row.
func (Address) Header() []string { return []string{"ADDRESS", "STATE", "OWNER", "RELEASED"} }

// Cells implements view.Row.
func (a Address) Cells() []string {
	released := ""
	if !a.Since.IsZero() {
		released = a.Since.Format(time.RFC3339)
	}
	return []string{a.Address.String(), a.State, a.Owner, released}
}

// useOf tells an address whose DEL has been answered, and whose interface is
// about to go, from one that is in use.
func useOf(f *facts.Facts, owner string) string {
	k, err := attach.ParseKey(owner)
	if err != nil {
		return "used"
	}
	if rec, found := f.Get(k); found && rec.Phase == facts.Releasing {
		return "releasing"
	}
	return "used"
}

// Addresses lists every address that is used, then those released, oldest
// release first: the order in which they are used again.
func Addresses(f *facts.Facts, now time.Time) ([]Address, error) {
	agent, err := engine.RecordedNetwork(f)
	if err != nil {
		return nil, err
	}
	cooldown := agent.Cooldown
	if f.Config() == "" {
		cooldown = DefaultCooldown
	}
	scopes := []networkSubnet{{"", facts.Veth, netip.Prefix{}}}
	for _, rec := range f.Records() {
		s := networkSubnet{rec.Key.Network, facts.IPAM, netip.Prefix{}}
		if rec.Kind == facts.IPAM && !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	var rows []Address
	for _, s := range scopes {
		u := f.Usage(s.kind, s.network)
		for a, owner := range u.Used {
			rows = append(rows, Address{Address: a, State: useOf(f, owner), Owner: owner})
		}
		for a, at := range u.Released {
			state := "released"
			if now.UnixNano()-at < int64(cooldown) {
				state = "cooling"
			}
			rows = append(rows, Address{Address: a, State: state, Since: time.Unix(0, at).UTC()})
		}
	}
	return rows, nil
}
