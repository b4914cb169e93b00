// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// Barrier is a chain that drops forwarded packets of our pods.
type Barrier struct {
	Table   string // family and name, such as "ip filter"
	Chain   string
	Subnets []netip.Prefix // whose packets it drops
	Advice  string         // how to let them pass
}

// String says it in one line.
func (b Barrier) String() string {
	subnets := make([]string, 0, len(b.Subnets))
	for _, s := range b.Subnets {
		subnets = append(subnets, s.String())
	}
	return fmt.Sprintf("chain %s of table %s drops what pods of %s send or get, and has no rule for them; let them pass: %s",
		b.Chain, b.Table, strings.Join(subnets, ", "), b.Advice)
}

// Barriers returns what drops packets to and from these subnets of pods. With
// an error, the result is what could be read.
func Barriers(subnets []netip.Prefix) ([]Barrier, error) {
	chains, nftErr := nftChains()
	legacy, legacyErr := legacyChains()
	var barriers []Barrier
	err := errors.Join(nftErr, legacyErr)
	for _, c := range append(chains, legacy...) {
		blocked, cerr := c.blocks(subnets)
		if cerr != nil {
			err = errors.Join(err, fmt.Errorf("read chain %s of table %s: %w", c.name, c.table, cerr))
		}
		if len(blocked) > 0 {
			barriers = append(barriers, Barrier{Table: c.table, Chain: c.name, Subnets: blocked, Advice: c.advice()})
		}
	}
	return barriers, err
}

// advice is how to let our pods pass by the means of whoever made the chain.
func (b baseChain) advice() string {
	name := attach.HostIfnamePrefix
	tables := map[string]string{
		"ip filter": "iptables", "ip6 filter": "ip6tables",
		legacyTable4: "iptables-legacy", legacyTable6: "ip6tables-legacy",
	}
	switch command := tables[b.table]; {
	case command != "" && b.name == forwardChain:
		chain := b.name
		if b.docker {
			chain = dockerUser // docker keeps it across its restarts
		}
		return fmt.Sprintf("%[1]s -I %[2]s -i %[3]s+ -j ACCEPT && %[1]s -I %[2]s -o %[3]s+ -j ACCEPT", command, chain, name)
	case strings.HasSuffix(b.table, " firewalld"):
		return fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s+ && firewall-cmd --reload", name)
	}
	return fmt.Sprintf(`nft 'insert rule %[1]s %[2]s iifname "%[3]s*" accept; insert rule %[1]s %[2]s oifname "%[3]s*" accept'`, b.table, b.name, name)
}

// Names of iptables and docker.
const (
	forwardChain = "FORWARD"
	dockerUser   = "DOCKER-USER"
	legacyTable4 = "filter (iptables-legacy)"
	legacyTable6 = "filter (ip6tables-legacy)"
)
