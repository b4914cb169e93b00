// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"weft.dev/weft/internal/kernel/nstest"
)

var (
	pods4 = netip.MustParsePrefix("10.42.3.0/24")
	pods6 = netip.MustParsePrefix("fd00:42:0:3::/64")
)

// firewall has the tools make rules, one command a line, in a namespace of its
// own, and returns the barriers there.
func firewall(t *testing.T, commands string) (barriers []Barrier) {
	t.Helper()
	nstest.Need(t, "nftables")
	nstest.New(t).Do(func() {
		for _, line := range strings.Split(strings.TrimSpace(commands), "\n") {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			tool, args, _ := strings.Cut(line, " ")
			argv := strings.Fields(args)
			if tool == "nft" {
				argv = []string{args}
			}
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("no %s command: apt-get install nftables iptables", tool)
			}
			if out, err := exec.Command(tool, argv...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
		var err error
		if barriers, err = Barriers([]netip.Prefix{pods4, pods6}); err != nil {
			t.Fatal(err)
		}
	})
	return barriers
}

// said is each barrier as "table chain: subnets".
func said(barriers []Barrier) string {
	var lines []string
	for _, b := range barriers {
		var subnets []string
		for _, s := range b.Subnets {
			subnets = append(subnets, s.String())
		}
		lines = append(lines, b.Table+" "+b.Chain+": "+strings.Join(subnets, " "))
	}
	return strings.Join(lines, "\n")
}

const base = "nft add table inet filter; add chain inet filter forward { type filter hook forward priority 0; policy drop; }\n"

func TestWhatDropsIsNamed(t *testing.T) {
	both := "inet filter forward: " + pods4.String() + " " + pods6.String()
	for name, c := range map[string]struct{ commands, want string }{
		"nothing at all": {"", ""},
		"policy accept":  {"nft add table inet filter; add chain inet filter forward { type filter hook forward priority 0; }", ""},
		"another hook":   {"nft add table inet filter; add chain inet filter input { type filter hook input priority 0; policy drop; }", ""},
		"policy drop":    {base, both},
		"drop for conditions": {
			base + `nft add rule inet filter forward ct state established,related accept; add rule inet filter forward iifname "docker0" accept; add rule inet filter forward ip saddr 10.0.0.0/16 accept`,
			both,
		},
		"one subnet accepted":      {base + "nft add rule inet filter forward ip saddr 10.42.0.0/16 accept", "inet filter forward: " + pods6.String()},
		"odd prefixes accepted":    {base + "nft add rule inet filter forward ip daddr 10.32.0.0/12 accept; add rule inet filter forward ip6 saddr fd00:40::/30 accept", ""},
		"range accepted":           {base + "nft add rule inet filter forward ip saddr 10.42.0.1-10.42.9.9 accept", "inet filter forward: " + pods6.String()},
		"the other one accepted":   {base + "nft add rule inet filter forward ip saddr != 10.42.0.0/16 accept", both},
		"refused by name":          {base + "nft add rule inet filter forward ip saddr 10.42.0.0/16 drop", both},
		"interfaces accepted":      {base + `nft add rule inet filter forward iifname "weft*" accept`, ""},
		"more interfaces accepted": {base + `nft add rule inet filter forward oifname "w*" accept`, ""},
		"other interfaces":         {base + `nft add rule inet filter forward oifname "wefa*" accept; add rule inet filter forward iifname "we" accept`, both},
		"everything accepted":      {base + "nft add rule inet filter forward counter accept", ""},
		"IPv6 accepted":            {base + "nft add rule inet filter forward meta nfproto ipv6 accept", "inet filter forward: " + pods4.String()},
		"set": {
			base + "nft add set inet filter friends { type ipv4_addr; flags interval; elements = { 10.1.0.0/16, 10.42.0.0/16 }; }\n" +
				"nft add rule inet filter forward ip saddr @friends accept; add rule inet filter forward ip6 saddr { fd00:42:0:3::7, ::1 } accept", "",
		},
		"set of others": {
			base + "nft add rule inet filter forward ip saddr { 10.1.0.0/16, 10.43.0.0/16, 10.42.4.0/24 } accept; add rule inet filter forward iifname { eth0, eth1 } accept", both,
		},
		"verdict map": {base + `nft add rule inet filter forward iifname vmap { "lo" : accept, "weft0" : accept }`, ""},
		"in a chain that is called": {
			base + "nft add chain inet filter ours; add rule inet filter ours ip saddr 10.42.0.0/16 accept; add rule inet filter forward ct state new jump ours",
			"inet filter forward: " + pods6.String(),
		},
		"everything accepted in a chain that is called": {
			base + "nft add chain inet filter ours; add rule inet filter ours accept; add rule inet filter forward jump ours", "",
		},
		"called under a condition": {
			base + "nft add chain inet filter ours; add rule inet filter ours accept; add rule inet filter forward tcp dport 22 jump ours", both,
		},
		"a chain that returns": {
			base + "nft add chain inet filter ours; add rule inet filter ours return; add rule inet filter ours accept; add rule inet filter forward jump ours", both,
		},
		"a chain without return": {
			base + "nft add chain inet filter ours; add rule inet filter forward goto ours; add rule inet filter forward accept", both,
		},
		"reject at the end": {
			"nft add table inet firewalld; add chain inet firewalld filter_FORWARD { type filter hook forward priority 10; policy accept; }\n" +
				"nft add rule inet firewalld filter_FORWARD ct state established accept; add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited",
			"inet firewalld filter_FORWARD: " + pods4.String() + " " + pods6.String(),
		},
		"two chains, one open": {
			base + "nft add rule inet filter forward accept; add chain inet filter later { type filter hook forward priority 5; policy drop; }",
			"inet filter later: " + pods4.String() + " " + pods6.String(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := said(firewall(t, c.commands)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// What docker does, and what its documentation advises, in both tools.
func TestIptables(t *testing.T) {
	tables := map[string]string{
		"iptables-nft": "ip filter", "ip6tables-nft": "ip6 filter", "iptables-legacy": legacyTable4, "ip6tables-legacy": legacyTable6,
	}
	for tool, table := range tables {
		pods, other := pods4.String(), "10.9.0.0/16"
		if strings.HasPrefix(tool, "ip6") {
			pods, other = pods6.String(), "fd09::/16"
		}
		blocked := table + " FORWARD: " + pods
		for name, c := range map[string]struct{ rules, want string }{
			"accept":          {"-P FORWARD ACCEPT", ""},
			"drop":            {"-P FORWARD DROP", blocked},
			"drop, not ours":  {"-P FORWARD DROP\n-A FORWARD -i docker0 -j ACCEPT\n-A FORWARD -s " + other + " -j ACCEPT\n-A FORWARD -p tcp -j ACCEPT\n-A INPUT -i weft+ -j ACCEPT", blocked},
			"not the subnet":  {"-P FORWARD DROP\n-A FORWARD ! -s " + pods + " -j ACCEPT\n-A FORWARD ! -i weft+ -j ACCEPT", blocked},
			"match":           {"-P FORWARD DROP\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT", blocked},
			"without target":  {"-P FORWARD DROP\n-A FORWARD", blocked},
			"subnet":          {"-P FORWARD DROP\n-A FORWARD -d " + pods + " -j ACCEPT", ""},
			"interface":       {"-P FORWARD DROP\n-A FORWARD -o weft+ -j ACCEPT", ""},
			"everything":      {"-P FORWARD DROP\n-A FORWARD -j ACCEPT", ""},
			"reject":          {"-A FORWARD -i eth0 -j ACCEPT\n-A FORWARD -j REJECT", blocked},
			"user chain":      {"-P FORWARD DROP\n-N A\n-N B\n-A FORWARD -j A\n-A A -p udp -j RETURN\n-A A -j B\n-A B -s " + pods + " -j ACCEPT", ""},
			"goto":            {"-P FORWARD DROP\n-N A\n-A FORWARD -g A\n-A FORWARD -j ACCEPT", blocked},
			"user chain ends": {"-P FORWARD DROP\n-N A\n-N B\n-A FORWARD -j A\n-A A -j RETURN\n-A B -j ACCEPT", blocked},
		} {
			t.Run(tool+"/"+name, func(t *testing.T) {
				commands := tool + " -w " + strings.ReplaceAll(c.rules, "\n", "\n"+tool+" -w ")
				if got := said(firewall(t, commands)); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
}

// Whoever follows the advice has removed the barrier.
func TestAdvice(t *testing.T) {
	for name, commands := range map[string]string{
		"iptables":        "iptables-nft -P FORWARD DROP\nip6tables-nft -P FORWARD DROP",
		"docker":          "iptables-nft -P FORWARD DROP\niptables-nft -N DOCKER-USER\niptables-nft -A FORWARD -j DOCKER-USER",
		"iptables-legacy": "iptables-legacy -P FORWARD DROP\niptables-legacy -N DOCKER-USER\niptables-legacy -A FORWARD -j DOCKER-USER",
		"nft":             base,
	} {
		t.Run(name, func(t *testing.T) {
			barriers := firewall(t, commands)
			if len(barriers) == 0 {
				t.Fatal("no barrier")
			}
			var followed strings.Builder
			for _, b := range barriers {
				if strings.Contains(commands, dockerUser) != strings.Contains(b.Advice, dockerUser) {
					t.Errorf("advice %q", b.Advice)
				}
				// The tool's own name, whatever it is a link to on this machine.
				for step := range strings.SplitSeq(b.Advice, " && ") {
					for _, nft := range []string{"iptables", "ip6tables"} {
						step = strings.Replace(step, nft+" -I", nft+"-nft -I", 1)
					}
					followed.WriteString("\n" + strings.ReplaceAll(step, "'", ""))
				}
			}
			if left := firewall(t, commands+followed.String()); len(left) > 0 {
				t.Errorf("after%s\nthere is still %s", followed.String(), left[0])
			}
		})
	}
}

// Whatever the kernel hands out, reading it ends.
func FuzzLegacy(f *testing.F) {
	f.Add(make([]byte, 400), uint16(0), uint16(176))
	f.Fuzz(func(t *testing.T, entries []byte, begin, last uint16) {
		for _, family := range legacyFamilies {
			table := legacyTable{legacyFamily: family, entries: entries, begin: int(begin), last: int(last)}
			if blocked, err := table.chain().blocks([]netip.Prefix{pods4, pods6}); err == nil && len(blocked) > 1 {
				t.Errorf("%v: one family has one subnet", blocked)
			}
		}
	})
}
