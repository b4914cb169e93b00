// SPDX-License-Identifier: Apache-2.0

package nstest

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// feature is something that a kernel may have been built without.
type feature struct {
	required bool         // the kernels that Weft is tested on have it
	probe    func() error // runs in a fresh namespace; nil: the feature works
}

// features are named as a person would. What is required is what the test
// cluster's kernel is known to have.
var features = map[string]feature{
	"veth":      {true, addLink(&netlink.Veth{LinkAttrs: probeAttrs, PeerName: "peer"})},
	"bridge":    {true, addLink(&netlink.Bridge{LinkAttrs: probeAttrs})},
	"vxlan":     {true, addLink(&netlink.Vxlan{LinkAttrs: probeAttrs, VxlanId: 7, Port: 4789})},
	"ifb":       {true, addLink(&netlink.Ifb{LinkAttrs: probeAttrs})},
	"tuntap":    {true, addLink(&netlink.Tuntap{LinkAttrs: probeAttrs, Mode: netlink.TUNTAP_MODE_TUN})},
	"macvlan":   {true, onVeth(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE})},
	"ipv6":      {true, func() error { _, err := os.Stat("/proc/sys/net/ipv6/conf/lo"); return err }},
	"nftables":  {true, masquerade(nftables.TableFamilyINet, nftables.ChainTypeFilter, nil)},
	"ipv4 nat":  {true, masquerade(nftables.TableFamilyIPv4, nftables.ChainTypeNAT, &expr.Masq{})},
	"ipv6 nat":  {true, masquerade(nftables.TableFamilyIPv6, nftables.ChainTypeNAT, &expr.Masq{})},
	"inet nat":  {true, masquerade(nftables.TableFamilyINet, nftables.ChainTypeNAT, &expr.Masq{})},
	"conntrack": {true, func() error { _, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_max"); return err }},
	"dummy":     {false, addLink(&netlink.Dummy{LinkAttrs: probeAttrs})},
	"wireguard": {false, addLink(&netlink.Wireguard{LinkAttrs: probeAttrs})},
	"vrf":       {false, addLink(&netlink.Vrf{LinkAttrs: probeAttrs, Table: 10})},
	"geneve":    {false, addLink(&netlink.Geneve{LinkAttrs: probeAttrs, ID: 7, Dport: 6081})},
	"bond":      {false, addLink(netlink.NewLinkBond(probeAttrs))},
	"ipvlan":    {false, onVeth(&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L3})},
	"vlan":      {false, onVeth(&netlink.Vlan{VlanId: 7})},
}

var probeAttrs = netlink.LinkAttrs{Name: "probe", TxQLen: -1}

func addLink(l netlink.Link) func() error {
	return func() error { return netlink.LinkAdd(l) }
}

// onVeth adds a link that lives on top of another one.
func onVeth(l netlink.Link) func() error {
	return func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "below"}, PeerName: "peer"}); err != nil {
			return err
		}
		below, err := netlink.LinkByName("below")
		if err != nil {
			return err
		}
		*l.Attrs() = netlink.LinkAttrs{Name: "above", ParentIndex: below.Attrs().Index, TxQLen: -1}
		return netlink.LinkAdd(l)
	}
}

// masquerade loads a chain with at most one rule.
func masquerade(family nftables.TableFamily, kind nftables.ChainType, e expr.Any) func() error {
	return func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Name: "probe", Family: family})
		chain := c.AddChain(&nftables.Chain{
			Name: "probe", Table: table, Type: kind,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		})
		if e != nil {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{e}})
		}
		return c.Flush()
	}
}

// probed remembers outcomes: a feature neither comes nor goes during a run.
var probed struct {
	sync.Mutex
	outcome map[string]error
}

func probe(t testing.TB, name string) error {
	probed.Lock()
	defer probed.Unlock()
	if err, known := probed.outcome[name]; known {
		return err
	}
	var err error
	New(t).Do(func() { err = features[name].probe() })
	if probed.outcome == nil {
		probed.outcome = make(map[string]error)
	}
	probed.outcome[name] = err
	return err
}

// Need declares what a test needs of the kernel. Where something is missing
// the test is skipped, or fails if kernels for Weft's tests must have it.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		f, known := features[name]
		if !known {
			t.Fatalf("nstest: no feature %q; there are: %s", name, strings.Join(Features(), ", "))
			return
		}
		judge(t, name, f.required, probe(t, name))
	}
}

// judge turns the outcome of a probe into that of the test.
func judge(t testing.TB, name string, required bool, missing error) {
	t.Helper()
	switch {
	case missing == nil:
		record(t, fmt.Sprintf("LEDGER ran %s: kernel has %s", t.Name(), name))
	case required:
		record(t, fmt.Sprintf("LEDGER failed %s: kernel lacks %s", t.Name(), name))
		t.Fatalf("the kernel must have %s for this test, but: %v", name, missing)
	default:
		line := fmt.Sprintf("LEDGER skipped %s: kernel lacks %s", t.Name(), name)
		record(t, line)
		t.Skip(line)
	}
}

// Features lists the names that Need knows.
func Features() []string {
	var names []string
	for name := range features {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// record appends a line to the ledger. One write of O_APPEND is not torn by
// the other test processes that write to the same file.
func record(t testing.TB, line string) {
	t.Helper()
	path := os.Getenv("WEFT_TEST_LEDGER")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(line + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Errorf("write test ledger: %v", err)
	}
}
