// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"net/netip"
	"slices"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// verdict is what a rule does with a packet that it matches.
type verdict int

const (
	next   verdict = iota // nothing that decides
	accept                // leave this hook's chain, and pass
	drop                  // or reject
	leave                 // return to the chain before, or to the policy
	call                  // go on in another chain, and come back
	follow                // go on in another chain
)

// rule is a rule as far as it matters here.
type rule struct {
	family      byte     // 4 or 6: it matches this family only; 0: both
	conditional bool     // it matches something more
	ifnames     []string // interfaces that it matches; with "*" at the end, all that begin so
	spans       []span   // addresses that it matches, as source or destination
	verdict     verdict
	target      string // of call and follow
}

// span is a range of addresses, both ends included.
type span struct{ first, last netip.Addr }

func spanOf(p netip.Prefix) span {
	p = p.Masked()
	last := p.Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	end, _ := netip.AddrFromSlice(last)
	return span{p.Addr(), end}
}

func (s span) overlaps(o span) bool {
	return s.first.Is4() == o.first.Is4() && s.first.Compare(o.last) <= 0 && o.first.Compare(s.last) <= 0
}

// mentions reports whether the rule is about an interface of ours, or about
// addresses of the subnet.
func (r rule) mentions(subnet span) bool {
	return slices.ContainsFunc(r.ifnames, ours) || slices.ContainsFunc(r.spans, subnet.overlaps)
}

func ours(ifname string) bool {
	beginning, wild := strings.CutSuffix(ifname, "*")
	return strings.HasPrefix(beginning, attach.HostIfnamePrefix) || wild && strings.HasPrefix(attach.HostIfnamePrefix, beginning)
}

// baseChain is a chain at the forward hook.
type baseChain struct {
	table, name string
	families    []byte // 4, 6
	policy      verdict
	docker      bool                               // the table has docker's chain for rules of the user
	rules       func(chain string) ([]rule, error) // of the same table
}

// maxDepth is how deep chains can call each other (NFT_JUMP_STACK_SIZE).
const maxDepth = 16

// byDefault returns what becomes of a packet of the family that no condition
// matches: accept or drop.
func (b baseChain) byDefault(family byte) (verdict, error) {
	v, err := b.walk(b.name, family, 0)
	if v == next || v == leave {
		v = b.policy
	}
	return v, err
}

func (b baseChain) walk(chain string, family byte, depth int) (verdict, error) {
	rules, err := b.rules(chain)
	if err != nil || depth > maxDepth {
		return next, err
	}
	for _, r := range rules {
		if r.conditional || r.family != 0 && r.family != family {
			continue
		}
		v := r.verdict
		if v == call || v == follow {
			if v, err = b.walk(r.target, family, depth+1); err != nil {
				return next, err
			}
			if r.verdict == follow && v == next {
				v = leave
			}
			if r.verdict == call && v == leave {
				v = next
			}
		}
		if v != next {
			return v, nil
		}
	}
	return next, nil
}

// unmentioned returns those subnets of the family that no rule lets pass.
func (b baseChain) unmentioned(family byte, subnets []netip.Prefix) ([]netip.Prefix, error) {
	var left []netip.Prefix
	for _, s := range subnets {
		if s.Addr().Is4() == (family == 4) {
			left = append(left, s)
		}
	}
	seen, chains := map[string]bool{b.name: true}, []string{b.name}
	for len(chains) > 0 && len(left) > 0 {
		rules, err := b.rules(chains[0])
		if err != nil {
			return nil, err
		}
		chains = chains[1:]
		for _, r := range rules {
			if r.family != 0 && r.family != family {
				continue
			}
			if r.target != "" && !seen[r.target] {
				seen[r.target] = true
				chains = append(chains, r.target)
			}
			if r.verdict == accept || r.verdict == call || r.verdict == follow {
				left = slices.DeleteFunc(left, func(s netip.Prefix) bool { return r.mentions(spanOf(s)) })
			}
		}
	}
	return left, nil
}

// blocks returns the subnets whose packets the chain drops.
func (b baseChain) blocks(subnets []netip.Prefix) ([]netip.Prefix, error) {
	var blocked []netip.Prefix
	for _, family := range b.families {
		v, err := b.byDefault(family)
		if err != nil {
			return nil, err
		}
		if v != drop {
			continue
		}
		left, err := b.unmentioned(family, subnets)
		if err != nil {
			return nil, err
		}
		blocked = append(blocked, left...)
	}
	return blocked, nil
}
