// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"strings"
	"testing"

	"github.com/google/nftables"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/kernel/nstest"
	"weft.dev/weft/internal/report"
)

func TestForwardingStatus(t *testing.T) {
	nstest.Need(t, "nftables")
	f, _ := world(t)
	nstest.New(t).Do(func() {
		if rows := forwardingStatus(f); len(rows) != 1 || rows[0].State != report.Good {
			t.Errorf("without a firewall: %v", rows)
		}
		c, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		policy := nftables.ChainPolicyDrop
		c.AddChain(&nftables.Chain{
			Name: "FORWARD", Table: c.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4}), Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &policy,
		})
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		rows := forwardingStatus(f)
		if len(rows) != 1 || rows[0].State != report.Bad {
			t.Fatalf("with policy drop: %v", rows)
		}
		for _, want := range []string{"chain FORWARD of table ip filter", "10.0.0.0/24", "iptables -I FORWARD -i weft+ -j ACCEPT"} {
			if !strings.Contains(rows[0].Detail, want) {
				t.Errorf("no %q in %s", want, rows[0].Detail)
			}
		}
		// The reservation's subnet is another plugin's: that is its affair.
		if strings.Contains(rows[0].Detail, "192.168.0.0") {
			t.Error(rows[0].Detail)
		}
		if rows := forwardingStatus(facts.New()); rows != nil {
			t.Errorf("without pods: %v", rows)
		}
	})
}
