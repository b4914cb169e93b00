// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The table, as `nft list ruleset` shows it, for one family:
//
//	table inet weft-hostport {
//		map any4 { type inet_proto . inet_service : ipv4_addr . inet_service; elements = { tcp . 8080 : 10.42.0.5 . 80 } }
//		map one4 { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service }
//		set hairpin4 { type ipv4_addr . ipv4_addr; elements = { 10.42.0.5 . 10.42.0.5 } }
//		chain ports {
//			dnat ip to ip daddr . meta l4proto . th dport map @one4
//			dnat ip to meta l4proto . th dport map @any4
//		}
//		chain prerouting {	type nat hook prerouting priority dstnat - 10
//			fib daddr type local jump ports
//		}
//		chain output {		type nat hook output priority dstnat - 10
//			ip6 daddr ::1 return
//			fib daddr type local jump ports
//		}
//		chain postrouting {	type nat hook postrouting priority srcnat
//			ip saddr . ip daddr @hairpin4 masquerade
//			oifname "weft*" ip saddr 127.0.0.0/8 masquerade
//		}
//		chain loopback {	type filter hook prerouting priority raw
//			iifname "weft*" ip daddr 127.0.0.0/8 drop
//			iifname "weft*" ip saddr 127.0.0.0/8 drop
//		}
//	}
//
// Only addresses that are local to the host are mapped: a pod cannot take hold
// of what the host merely forwards. The chains come before kube-proxy's, so a
// port that is a Service's node port too leads to the pod, always. A packet to
// ::1 is left to the host's own processes: the kernel drops the answer.
//
// With a port mapped on loopback, the host end has route_localnet on; without
// the last chain its pod could reach what listens on the host's 127.0.0.1. It
// looks at packets as they come in: a rightful answer has the node's address
// then, which connection tracking only later turns into 127.0.0.1.

// portLayout goes into the comments of the rules, so that a Weft that builds
// the table differently replaces it. Increase it with every change to this
// file's rules and sets.
const portLayout = 1

const (
	portsChain   = "ports"
	beforeOthers = -10 // to priority dstnat
)

// nfproto, offsets and lengths of a family's addresses in its header.
type ipHeader struct {
	digit               string
	protocol            byte
	saddr, daddr, bytes uint32
	addrType            uint32 // nftables' number for the type of an address
}

var ipHeaders = []ipHeader{
	{"4", unix.NFPROTO_IPV4, 12, 16, 4, nftables.TypeIPAddr.GetNFTMagic()},
	{"6", unix.NFPROTO_IPV6, 8, 24, 16, nftables.TypeIP6Addr.GetNFTMagic()},
}

// portSet is a set of the table: the types of its key, and of its data if it is
// a map, with the length of each in bytes.
type portSet struct {
	name              string
	keyType, keyLen   uint32
	dataType, dataLen uint32
}

// concat returns nftables' number for a concatenation.
func concat(types ...uint32) (n uint32) {
	for _, t := range types {
		n = n<<nftables.SetConcatTypeBits | t
	}
	return n
}

func portSets() []portSet {
	proto, service := nftables.TypeInetProto.GetNFTMagic(), nftables.TypeInetService.GetNFTMagic()
	var sets []portSet
	for _, h := range ipHeaders {
		target, targetLen := concat(h.addrType, service), h.bytes+4
		sets = append(sets,
			portSet{anySet + h.digit, concat(proto, service), 8, target, targetLen},
			portSet{oneSet + h.digit, concat(h.addrType, proto, service), h.bytes + 8, target, targetLen},
			portSet{hairpinSet + h.digit, concat(h.addrType, h.addrType), 2 * h.bytes, 0, 0})
	}
	return sets
}

type portRule struct {
	chain string
	exprs []expr.Any
}

// Registers of four bytes; register 1, of sixteen, is the first four of them.
const register = unix.NFT_REG32_00

func portRules() []portRule {
	local := []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: nl.Uint32Attr(unix.RTN_LOCAL)},
		&expr.Verdict{Kind: expr.VerdictJump, Chain: portsChain},
	}
	v4, v6 := ipHeaders[0], ipHeaders[1]
	toLoopback6 := append(v6.load(v6.daddr, register),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: append(make([]byte, 15), 1)}, &expr.Verdict{Kind: expr.VerdictReturn})
	return []portRule{
		{portsChain, v4.dnatOne()}, {portsChain, v4.dnatAny()}, {portsChain, v6.dnatOne()}, {portsChain, v6.dnatAny()},
		{"prerouting", local},
		{"output", toLoopback6}, {"output", local},
		{"postrouting", v4.hairpin()}, {"postrouting", v6.hairpin()},
		{"postrouting", append(append(ourDevice(expr.MetaKeyOIFNAME), v4.loopback(v4.saddr)...), &expr.Masq{FullyRandom: true})},
		{"loopback", append(append(ourDevice(expr.MetaKeyIIFNAME), v4.loopback(v4.daddr)...), &expr.Verdict{Kind: expr.VerdictDrop})},
		{"loopback", append(append(ourDevice(expr.MetaKeyIIFNAME), v4.loopback(v4.saddr)...), &expr.Verdict{Kind: expr.VerdictDrop})},
	}
}

// load puts an address of the header into registers, if the packet is of the
// family.
func (h ipHeader) load(offset, into uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{h.protocol}},
		&expr.Payload{DestRegister: into, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: h.bytes},
	}
}

// dnatAny looks up protocol and port, dnatOne the address before them.
func (h ipHeader) dnatAny() []expr.Any {
	return h.dnat(h.load(h.daddr, register)[:2], anySet, register)
}

func (h ipHeader) dnatOne() []expr.Any {
	return h.dnat(h.load(h.daddr, register), oneSet, register+h.bytes/4)
}

func (h ipHeader) dnat(exprs []expr.Any, set string, next uint32) []expr.Any {
	return append(exprs,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next},
		&expr.Payload{DestRegister: next + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: register, DestRegister: register, IsDestRegSet: true, SetName: set + h.digit},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(h.protocol), RegAddrMin: register, RegProtoMin: register + h.bytes/4},
	)
}

func (h ipHeader) hairpin() []expr.Any {
	return append(h.load(h.saddr, register),
		&expr.Payload{DestRegister: register + h.bytes/4, Base: expr.PayloadBaseNetworkHeader, Offset: h.daddr, Len: h.bytes},
		&expr.Lookup{SourceRegister: register, SetName: hairpinSet + h.digit},
		&expr.Masq{FullyRandom: true},
	)
}

// loopback matches 127.0.0.0/8 by its first byte.
func (h ipHeader) loopback(offset uint32) []expr.Any {
	exprs := h.load(offset, 1)
	exprs[2].(*expr.Payload).Len = 1
	return append(exprs, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{127}})
}

// ourDevice matches names that begin like those of host ends.
func ourDevice(key expr.MetaKey) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(strings.TrimSpace(aliasMark))},
	}
}

type portChain struct {
	name, kind     string // kind "": not hooked
	hook, priority int
}

func portChains() []portChain {
	dstnat, srcnat, raw := int(*nftables.ChainPriorityNATDest), int(*nftables.ChainPriorityNATSource), int(*nftables.ChainPriorityRaw)
	return []portChain{
		{portsChain, "", 0, 0},
		{"prerouting", "nat", unix.NF_INET_PRE_ROUTING, dstnat + beforeOthers},
		{"output", "nat", unix.NF_INET_LOCAL_OUT, dstnat + beforeOthers},
		{"postrouting", "nat", unix.NF_INET_POST_ROUTING, srcnat},
		{"loopback", "filter", unix.NF_INET_PRE_ROUTING, raw},
	}
}

// portRuleComment is by what the table is judged: as many rules as there should
// be, each of the number that it should have.
func portRuleComment(i, of int) string {
	return fmt.Sprintf("weft %d/%d layout %d", i+1, of, portLayout)
}

// rebuildPortTable makes the table anew, whatever there is.
func rebuildPortTable(elements []portElement) []*message {
	msgs := []*message{nftAddTable(HostPortTable), nftDeleteTable(HostPortTable), nftAddTable(HostPortTable)}
	for _, c := range portChains() {
		msgs = append(msgs, c.add())
	}
	for i, s := range portSets() {
		msgs = append(msgs, s.add(uint32(i+1)))
	}
	rules := portRules()
	for i, r := range rules {
		msgs = append(msgs, r.add(portRuleComment(i, len(rules))))
	}
	for _, e := range elements {
		msgs = append(msgs, e.add())
	}
	return msgs
}

func nftAddTable(name string) *message {
	return nftMessage(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, "add table", name, text(unix.NFTA_TABLE_NAME, name))
}

func nftDeleteTable(name string) *message {
	return nftMessage(unix.NFT_MSG_DELTABLE, 0, "delete table", name, text(unix.NFTA_TABLE_NAME, name))
}

func (c portChain) add() *message {
	attributes := []*nl.RtAttr{text(unix.NFTA_CHAIN_TABLE, HostPortTable), text(unix.NFTA_CHAIN_NAME, c.name)}
	if c.kind != "" {
		attributes = append(attributes,
			nested(unix.NFTA_CHAIN_HOOK, be32(unix.NFTA_HOOK_HOOKNUM, uint32(c.hook)), be32(unix.NFTA_HOOK_PRIORITY, uint32(int32(c.priority)))),
			text(unix.NFTA_CHAIN_TYPE, c.kind))
	}
	return nftMessage(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, "add chain", c.name, attributes...)
}

func (s portSet) add(id uint32) *message {
	attributes := []*nl.RtAttr{
		text(unix.NFTA_SET_TABLE, HostPortTable), text(unix.NFTA_SET_NAME, s.name), be32(unix.NFTA_SET_ID, id),
		be32(unix.NFTA_SET_KEY_TYPE, s.keyType), be32(unix.NFTA_SET_KEY_LEN, s.keyLen),
	}
	flags := uint32(0)
	if s.dataLen > 0 {
		flags = unix.NFT_SET_MAP
		attributes = append(attributes, be32(unix.NFTA_SET_DATA_TYPE, s.dataType), be32(unix.NFTA_SET_DATA_LEN, s.dataLen))
	}
	return nftMessage(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, "add set", s.name, append(attributes, be32(unix.NFTA_SET_FLAGS, flags))...)
}

func (r portRule) add(comment string) *message {
	list := nested(unix.NFTA_RULE_EXPRESSIONS)
	for _, e := range r.exprs {
		b, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			panic("kernel: an expression without variables does not encode: " + err.Error())
		}
		list.AddChild(nl.NewRtAttr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, b))
	}
	return nftMessage(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, "add rule", r.chain+" "+comment,
		text(unix.NFTA_RULE_TABLE, HostPortTable), text(unix.NFTA_RULE_CHAIN, r.chain), list,
		nl.NewRtAttr(unix.NFTA_RULE_USERDATA, userdata.AppendString(nil, userdata.TypeComment, comment)))
}

// portTable is what the kernel has.
type portTable struct {
	generation uint32 // of all of nftables, when reading began
	there      bool
	whole      bool // sets and rules are those of this release
	elements   []portElement
}

func (c *conn) readPortTable() (portTable, error) {
	var s portTable
	generation := nftRead(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, "get generation", "", func(body []byte) error {
		return parseAttrs(body, nfnetlinkHeader, func(kind int, v []byte) {
			if kind == unix.NFTA_GEN_ID && len(v) == 4 {
				s.generation = binary.BigEndian.Uint32(v)
			}
		})
	})
	table := nftRead(nftGetTable, "look up table", HostPortTable, func([]byte) error { return nil }, text(unix.NFTA_TABLE_NAME, HostPortTable))
	if err := c.exec(generation, table); err != nil {
		if generation.err == nil && isErrno(err, unix.ENOENT) {
			err = nil
		}
		return s, err
	}
	s.there = true
	comments, err := c.ruleComments(HostPortTable, "")
	if err != nil {
		return s, err
	}
	s.whole = slices.Equal(comments, wantedPortComments())
	for _, set := range portSets() {
		elements, found, err := c.portElements(set.name)
		if err != nil {
			return s, err
		}
		s.whole = s.whole && found
		s.elements = append(s.elements, elements...)
	}
	return s, nil
}

func wantedPortComments() (comments []string) {
	n := len(portRules())
	for i := range n {
		comments = append(comments, portRuleComment(i, n))
	}
	return comments
}

func (c *conn) portElements(set string) (elements []portElement, there bool, err error) {
	err = c.dumpStable(func() *message {
		elements = nil
		return nftRead(nftGetElements, "list elements of set", HostPortTable+" "+set, func(body []byte) error {
			part, err := parsePortElements(set, body)
			elements = append(elements, part...)
			return err
		}, text(unix.NFTA_SET_ELEM_LIST_TABLE, HostPortTable), text(unix.NFTA_SET_ELEM_LIST_SET, set))
	})
	if isErrno(err, unix.ENOENT) {
		return nil, false, nil
	}
	return elements, err == nil, err
}
