// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/kernel"
)

// flowCase is an entry of connection tracking: from and to of the first packet,
// and of its answer.
type flowCase struct {
	name        string
	orig, reply string // "address:port>address:port"
	tcp         bool
	zone        uint16
	added       bool // ADD of the port forgets it
	deleted     bool // DEL of the port forgets it
}

// The node is 192.0.2.10, the pod 10.42.3.7; port 5353 leads to the pod's 53.
var flowCases4 = []flowCase{
	{name: "to nobody", orig: "198.18.0.1:4000>192.0.2.10:5353", reply: "192.0.2.10:5353>198.18.0.1:4000", added: true},
	{name: "to another pod before", orig: "198.18.0.1:4001>192.0.2.10:5353", reply: "10.42.3.99:53>198.18.0.1:4001", added: true},
	{name: "to loopback", orig: "127.0.0.1:4002>127.0.0.1:5353", reply: "127.0.0.1:5353>127.0.0.1:4002", added: true},
	{name: "to another address of loopback", orig: "127.0.0.1:4003>127.0.0.53:5353", reply: "127.0.0.53:5353>127.0.0.1:4003", added: true},
	{name: "to the first of loopback", orig: "127.0.0.9:4004>127.0.0.1:5353", reply: "127.0.0.1:5353>127.0.0.9:4004", added: true},
	{name: "to the pod by its port", orig: "198.18.0.1:4005>198.18.0.9:5353", reply: "10.42.3.7:53>198.18.0.1:4005", deleted: true},
	{name: "to the pod by its port, masqueraded", orig: "198.18.0.1:4006>198.18.0.9:5353", reply: "10.42.3.7:53>192.0.2.10:61000", deleted: true},
	{name: "to the pod itself", orig: "198.18.0.1:4007>10.42.3.7:53", reply: "10.42.3.7:53>198.18.0.1:4007"},
	{name: "to the pod by another port", orig: "198.18.0.1:4008>198.18.0.9:5354", reply: "10.42.3.7:53>198.18.0.1:4008"},
	{name: "to another port of the pod", orig: "198.18.0.1:4009>198.18.0.9:5353", reply: "10.42.3.7:54>198.18.0.1:4009"},
	{name: "to another port of the node", orig: "198.18.0.1:4010>192.0.2.10:5354", reply: "192.0.2.10:5354>198.18.0.1:4010"},
	{name: "from the port", orig: "192.0.2.10:5353>198.18.0.1:4011", reply: "198.18.0.1:4011>192.0.2.10:5353"},
	{name: "forwarded", orig: "10.42.3.8:4012>198.18.0.9:5353", reply: "198.18.0.9:5353>10.42.3.8:4012"},
	{name: "forwarded and masqueraded", orig: "10.42.3.8:4013>198.18.0.9:5353", reply: "198.18.0.9:5353>192.0.2.10:61001"},
	{name: "TCP to nobody", tcp: true, orig: "198.18.0.1:4014>192.0.2.10:5353", reply: "192.0.2.10:5353>198.18.0.1:4014"},
	{name: "TCP to the pod", tcp: true, orig: "198.18.0.1:4015>198.18.0.9:5353", reply: "10.42.3.7:53>198.18.0.1:4015"},
	{name: "to nobody in a zone", zone: 7, orig: "198.18.0.1:4016>192.0.2.10:5353", reply: "192.0.2.10:5353>198.18.0.1:4016"},
	{name: "to the pod in a zone", zone: 7, orig: "198.18.0.1:4017>198.18.0.9:5353", reply: "10.42.3.7:53>198.18.0.1:4017"},
}

var flowCases6 = []flowCase{
	{name: "to nobody", orig: "[2001:db8:9::1]:4000>[2001:db8::10]:5353", reply: "[2001:db8::10]:5353>[2001:db8:9::1]:4000", added: true},
	{name: "to another pod before", orig: "[2001:db8:9::1]:4001>[2001:db8::10]:5353", reply: "[fd00:42:3::99]:53>[2001:db8:9::1]:4001", added: true},
	{name: "to the pod by its port", orig: "[2001:db8:9::1]:4002>[2001:db8:9::9]:5353", reply: "[fd00:42:3::7]:53>[2001:db8:9::1]:4002", deleted: true},
	{name: "to the pod itself", orig: "[2001:db8:9::1]:4003>[fd00:42:3::7]:53", reply: "[fd00:42:3::7]:53>[2001:db8:9::1]:4003"},
	{name: "to another port of the pod", orig: "[2001:db8:9::1]:4004>[2001:db8:9::9]:5353", reply: "[fd00:42:3::7]:54>[2001:db8:9::1]:4004"},
	{name: "forwarded", orig: "[fd00:42:3::8]:4005>[2001:db8:9::9]:5353", reply: "[2001:db8:9::9]:5353>[fd00:42:3::8]:4005"},
	{name: "to nobody in a zone", zone: 7, orig: "[2001:db8:9::1]:4006>[2001:db8::10]:5353", reply: "[2001:db8::10]:5353>[2001:db8:9::1]:4006"},
}

// TestFlowsThatAreForgotten holds for one port, which the kernel compares, for
// several, and for a port at one address.
func TestFlowsThatAreForgotten(t *testing.T) {
	few := []attach.Port{port(attach.UDP, "", 5353, 53)}
	many := few
	for i := range uint16(20) {
		many = append(many, port(attach.UDP, "", 7000+i, 7000+i))
	}
	one := []attach.Port{port(attach.UDP, nodeAddr4.String(), 5353, 53), port(attach.UDP, nodeAddr6.String(), 5353, 53)}
	notThere := func(f flowCase) bool { return strings.Contains(f.name, "loopback") }
	for _, c := range []struct {
		name  string
		ports []attach.Port
		local string // a range of addresses of the node's own
		spare func(flowCase) bool
	}{
		{name: "one port", ports: few},
		{name: "many ports", ports: many},
		{name: "a range of local addresses", ports: few, local: "203.0.113.0/24"},
		{name: "one address", ports: one, spare: notThere},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.host.Do(func() { addLocalRange(t, c.local) })
			cases := slices.Concat(flowCases4, flowCases6)
			w.track(cases...)
			before := w.tracked()
			p := w.mapped(c.ports, families["dual"]...)
			w.expectFlows("ADD", before, cases, func(f flowCase) bool { return f.added && (c.spare == nil || !c.spare(f)) })
			before = w.tracked()
			if err := w.h.Detach(p.plan.HostIfname); err != nil {
				t.Fatal(err)
			}
			w.expectFlows("DEL", before, cases, func(f flowCase) bool { return f.deleted })
		})
	}
}

// TestFlowsOfMendedPorts: what goes to the pod already goes on undisturbed.
func TestFlowsOfMendedPorts(t *testing.T) {
	w := newWorld(t)
	p := w.mapped([]attach.Port{port(attach.UDP, "", 5353, 53)}, "10.42.3.7")
	cases := []flowCase{
		{name: "to the pod", orig: "198.18.0.1:4000>192.0.2.10:5353", reply: "10.42.3.7:53>198.18.0.1:4000"},
		{name: "to nobody", orig: "198.18.0.1:4001>192.0.2.10:5353", reply: "192.0.2.10:5353>198.18.0.1:4001", added: true},
	}
	w.track(cases...)
	before := w.tracked()
	w.host.Do(func() {
		if out, err := exec.Command("nft", "delete", "table", "inet", kernel.HostPortTable).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	if _, err := w.h.Mend(p.plan); err != nil {
		t.Fatal(err)
	}
	w.expectFlows("Mend", before, cases, func(f flowCase) bool { return f.added })
}

// expectFlows compares what became of those that were there before.
func (w *world) expectFlows(verb string, before []string, cases []flowCase, gone func(flowCase) bool) {
	w.Helper()
	after := w.tracked()
	for _, f := range cases {
		was, is := slices.Contains(before, f.id()), slices.Contains(after, f.id())
		if want := was && !gone(f); is != want {
			w.Errorf("after %s: flow %s (%s): there %t, want %t", verb, f.name, f.orig, is, want)
		}
		if !was && gone(f) {
			w.Errorf("before %s: flow %s (%s) is not there", verb, f.name, f.orig)
		}
	}
}

func addLocalRange(t *testing.T, prefix string) {
	if prefix == "" {
		return
	}
	_, dst, err := net.ParseCIDR(prefix)
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: 1, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (f flowCase) id() string { return fmt.Sprint(f.protocol(), " ", f.orig, " zone ", f.zone) }

func (f flowCase) protocol() uint8 {
	if f.tcp {
		return unix.IPPROTO_TCP
	}
	return unix.IPPROTO_UDP
}

// track makes entries as traffic would.
func (w *world) track(flows ...flowCase) {
	w.Helper()
	w.host.Do(func() {
		for _, f := range flows {
			if err := f.create(); err != nil {
				w.Fatalf("track %s: %v", f.orig, err)
			}
		}
	})
}

func (f flowCase) create() error {
	orig, family := f.tuple(nl.CTA_TUPLE_ORIG, f.orig)
	reply, _ := f.tuple(nl.CTA_TUPLE_REPLY, f.reply)
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family})
	for _, a := range []*nl.RtAttr{
		orig, reply, nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(3600)),
		nl.NewRtAttr(nl.CTA_ZONE, binary.BigEndian.AppendUint16(nil, f.zone)),
	} {
		req.AddData(a)
	}
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

func (f flowCase) tuple(kind int, s string) (tuple *nl.RtAttr, family uint8) {
	from, to, _ := strings.Cut(s, ">")
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	family, first := uint8(unix.AF_INET), nl.CTA_IP_V4_SRC
	if src.Addr().Is6() {
		family, first = unix.AF_INET6, nl.CTA_IP_V6_SRC
	}
	tuple = nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	addrs := tuple.AddRtAttr(nl.CTA_TUPLE_IP|unix.NLA_F_NESTED, nil)
	addrs.AddRtAttr(first, src.Addr().AsSlice())
	addrs.AddRtAttr(first+1, dst.Addr().AsSlice())
	proto := tuple.AddRtAttr(nl.CTA_TUPLE_PROTO|unix.NLA_F_NESTED, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{f.protocol()})
	proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, src.Port()))
	proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, dst.Port()))
	return tuple, family
}

// tracked lists the entries of both families.
func (w *world) tracked() (ids []string) {
	w.Helper()
	w.host.Do(func() {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				w.Fatal(err)
			}
			for _, f := range flows {
				ids = append(ids, fmt.Sprintf("%d %s>%s zone %d", f.Forward.Protocol, addrPort(f.Forward.SrcIP, f.Forward.SrcPort),
					addrPort(f.Forward.DstIP, f.Forward.DstPort), f.Zone))
			}
		}
	})
	return ids
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
