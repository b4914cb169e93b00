// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/crash"
)

// The table, as `nft list ruleset` shows it:
//
//	table inet weft.mynet {
//		set sources4 { type ipv4_addr; flags interval; elements = { 10.42.3.0/24 } }
//		set direct4 { type ipv4_addr; flags interval; elements = { 10.42.0.0/16, 127.0.0.0/8, ... } }
//		chain postrouting {
//			type nat hook postrouting priority srcnat; policy accept;
//			ip saddr @sources4 ip daddr != @direct4 masquerade fully-random comment "weft 1/1 1f0c..."
//		}
//	}
//
// One rule per family, whatever the number of pools. The comment of each rule
// counts the rules and holds a hash of the whole table: one look at the chain
// tells whether everything is as configured, and from which configuration.

// masqueradeLayout goes into the hash, so that a Weft which builds the table
// differently replaces it. Increase it with every change to this file's rules.
const masqueradeLayout = 1

const masqueradeChain = "postrouting"

// neverMasqueraded are destinations for which the node's address would be
// wrong as a source: loopback, link-local, multicast, broadcast.
var neverMasqueraded = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// natFamily is one family's part of the table.
type natFamily struct {
	ipv6            bool
	sources, direct []addrRange
}

func (f natFamily) suffix() string {
	if f.ipv6 {
		return "6"
	}
	return "4"
}

// familiesOf returns the families that have sources.
func familiesOf(n Node) []natFamily {
	direct := append(append([]netip.Prefix(nil), n.Pools...), neverMasqueraded...)
	var families []natFamily
	for _, ipv6 := range []bool{false, true} {
		f := natFamily{ipv6: ipv6, sources: rangesOf(n.Sources, ipv6), direct: rangesOf(direct, ipv6)}
		if len(f.sources) > 0 {
			families = append(families, f)
		}
	}
	return families
}

// commentsOf returns the comment that each family's rule bears.
func commentsOf(families []natFamily) (comments []string) {
	var content strings.Builder
	fmt.Fprintf(&content, "layout %d\n", masqueradeLayout)
	for _, f := range families {
		fmt.Fprintf(&content, "%s %v %v\n", f.suffix(), f.sources, f.direct)
	}
	sum := sha256.Sum256([]byte(content.String()))
	for i := range families {
		comments = append(comments, fmt.Sprintf("weft %d/%d %s", i+1, len(families), hex.EncodeToString(sum[:8])))
	}
	return comments
}

// ensureMasquerade looks at the chain, and replaces the table unless it is
// what is wanted. Without sources there is nothing to masquerade, and the
// table goes.
func (h *Handle) ensureMasquerade(n Node) error {
	if n.Table == "" {
		return nil
	}
	families := familiesOf(n)
	comments := commentsOf(families)
	if len(families) == 0 {
		return h.removeMasquerade(n.Table)
	}
	found, err := h.masqueradeComments(n.Table)
	if err != nil || strings.Join(found, "\n") == strings.Join(comments, "\n") {
		return err
	}
	if len(found) == 0 {
		// A transaction that deletes nothing spares an RCU grace period, some
		// 10 ms, when its socket is closed. It fails if there is a table.
		err := h.transact("create table "+n.Table, func(c *nftables.Conn) error {
			table := c.CreateTable(&nftables.Table{Name: n.Table, Family: nftables.TableFamilyINet})
			return addMasquerade(c, table, families)
		})
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return h.replaceMasquerade(n.Table, families)
}

// replaceMasquerade makes the table anew, whatever there is.
func (h *Handle) replaceMasquerade(name string, families []natFamily) error {
	return h.transact("replace table "+name, func(c *nftables.Conn) error {
		table := deleteTable(c, name)
		c.AddTable(table)
		return addMasquerade(c, table, families)
	})
}

// removeMasquerade deletes the table if it has rules of ours; looking costs a
// hundredth of deleting.
func (h *Handle) removeMasquerade(table string) error {
	found, err := h.masqueradeComments(table)
	if err != nil || len(found) == 0 {
		return err
	}
	return h.dropTable(table)
}

// dropTable deletes the table if it exists.
func (h *Handle) dropTable(name string) error {
	return h.transact("delete table "+name, func(c *nftables.Conn) error {
		deleteTable(c, name)
		return nil
	})
}

// deleteTable deletes a table whether or not it exists: adding one that exists
// changes nothing.
func deleteTable(c *nftables.Conn, name string) *nftables.Table {
	table := &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
	c.AddTable(table)
	c.DelTable(table)
	return table
}

// transact sends what fill queues as one nftables transaction: all or nothing.
func (h *Handle) transact(what string, fill func(c *nftables.Conn) error) error {
	c, err := h.nft()
	if err == nil {
		err = fill(c)
	}
	if err == nil {
		crash.Point("kernel-nft:before")
		err = c.Flush()
		crash.Point("kernel-nft:after")
	}
	if err != nil {
		return fmt.Errorf("nftables: %s: %w", what, err)
	}
	return nil
}

// nft returns a connection to nftables in the Handle's namespace.
func (h *Handle) nft() (*nftables.Conn, error) {
	if h.home.IsHost() {
		return nftables.New()
	}
	return nftables.New(nftables.WithNetNSFd(h.home.fd))
}

func addMasquerade(c *nftables.Conn, table *nftables.Table, families []natFamily) error {
	comments := commentsOf(families)
	chain := c.AddChain(&nftables.Chain{
		Name: masqueradeChain, Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for i, f := range families {
		sources, err := addRangeSet(c, table, uint32(2*i+1), "sources", f, f.sources)
		if err != nil {
			return err
		}
		direct, err := addRangeSet(c, table, uint32(2*i+2), "direct", f, f.direct)
		if err != nil {
			return err
		}
		c.AddRule(&nftables.Rule{
			Table: table, Chain: chain, Exprs: masqueradeRule(f, sources, direct),
			UserData: userdata.AppendString(nil, userdata.TypeComment, comments[i]),
		})
	}
	return nil
}

// addRangeSet gives the set its id, which rules of the same transaction refer
// to. The library would take one from a counter that goroutines race for.
func addRangeSet(
	c *nftables.Conn, table *nftables.Table, id uint32, name string, f natFamily, r []addrRange,
) (*nftables.Set, error) {
	set := &nftables.Set{Table: table, ID: id, Name: name + f.suffix(), KeyType: nftables.TypeIPAddr, Interval: true}
	if f.ipv6 {
		set.KeyType = nftables.TypeIP6Addr
	}
	elements := intervals(r)
	err := c.AddSet(set, nil)
	for chunk := range slices.Chunk(elements, maxSetElements) {
		err = errors.Join(err, c.SetAddElements(set, chunk))
	}
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", set.Name, err)
	}
	return set, nil
}

// maxSetElements bounds the elements in one message: they share an attribute,
// which holds 64 KiB. It is even, so that both ends of a range stay together.
// The whole table is one datagram, which holds some 1,500 ranges per family.
const maxSetElements = 1000

// masqueradeRule is "ip saddr @sources ip daddr != @direct masquerade
// fully-random". Random ports, because two connections that choose the same
// one at the same moment cost a dropped packet.
func masqueradeRule(f natFamily, sources, direct *nftables.Set) []expr.Any {
	protocol, saddr, daddr, length := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16), uint32(4)
	if f.ipv6 {
		protocol, saddr, daddr, length = unix.NFPROTO_IPV6, 8, 24, 16
	}
	load := func(offset uint32) expr.Any {
		return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
		load(saddr),
		&expr.Lookup{SourceRegister: 1, SetName: sources.Name, SetID: sources.ID},
		load(daddr),
		&expr.Lookup{SourceRegister: 1, SetName: direct.Name, SetID: direct.ID, Invert: true},
		&expr.Masq{FullyRandom: true},
	}
}

// masquerade compares the comments, which tell about the rules, and the sets.
func (d *differences) masquerade(h *Handle, n Node) error {
	if n.Table == "" {
		return nil
	}
	families := familiesOf(n)
	comments := commentsOf(families)
	found, err := h.masqueradeComments(n.Table)
	if err != nil {
		return err
	}
	object := "masquerade rules of table inet " + n.Table
	d.expect(object, orNothing(comments), orNothing(found))
	if len(found) == 0 || len(families) == 0 {
		return nil
	}
	return h.withNFT(func(c *conn) error {
		for _, f := range families {
			err := errors.Join(d.rangeSet(c, n.Table, "sources", f, f.sources), d.rangeSet(c, n.Table, "direct", f, f.direct))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *differences) rangeSet(c *conn, table, name string, f natFamily, want []addrRange) error {
	ranges, there, err := c.rangeSet(table, name, f)
	found := absent
	if there {
		found = fmt.Sprint(ranges)
	}
	if err == nil {
		d.expect(fmt.Sprintf("set %s%s of table inet %s", name, f.suffix(), table), fmt.Sprint(want), found)
	}
	return err
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return absent
	}
	return strings.Join(list, ", ")
}
