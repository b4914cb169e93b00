// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/topology"
)

// prefix draws prefixes that collide often: few bits differ.
func prefixGen(ipv6 bool) *rapid.Generator[netip.Prefix] {
	return rapid.Custom(func(t *rapid.T) netip.Prefix {
		size := 4
		if ipv6 {
			size = 16
		}
		b := make([]byte, size)
		b[0] = rapid.SampledFrom([]byte{0, 10, 127, 128, 255}).Draw(t, "first")
		b[size-1] = rapid.SampledFrom([]byte{0, 1, 2, 3, 128, 255}).Draw(t, "last")
		a, _ := netip.AddrFromSlice(b)
		bits := rapid.SampledFrom([]int{0, 1, 2, 7, 8, 8*size - 2, 8*size - 1, 8 * size}).Draw(t, "bits")
		return netip.PrefixFrom(a, bits)
	})
}

// TestRangesAreTheUnion: the same addresses as the prefixes, ascending, apart.
func TestRangesAreTheUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ipv6 := rapid.Bool().Draw(t, "ipv6")
		list := rapid.SliceOfN(prefixGen(ipv6), 0, 8).Draw(t, "prefixes")
		ranges := rangesOf(append(list, netip.MustParsePrefix("1.2.3.4/32"), netip.MustParsePrefix("::2/128")), ipv6)
		list = append(list, map[bool]netip.Prefix{false: netip.MustParsePrefix("1.2.3.4/32"), true: netip.MustParsePrefix("::2/128")}[ipv6])
		for i, r := range ranges {
			if r.last.Less(r.first) {
				t.Fatalf("range %s is backwards", r)
			}
			if i > 0 && (!ranges[i-1].last.Less(r.first) || ranges[i-1].last.Next() == r.first) {
				t.Fatalf("ranges %s and %s overlap or touch", ranges[i-1], r)
			}
		}
		in := func(a netip.Addr) (byPrefix, byRange bool) {
			for _, p := range list {
				byPrefix = byPrefix || p.Contains(a)
			}
			for _, r := range ranges {
				byRange = byRange || (!a.Less(r.first) && !r.last.Less(a))
			}
			return byPrefix, byRange
		}
		for _, p := range list { // addresses at and just beyond every edge
			first, last := p.Masked().Addr(), lastAddr(p)
			for _, a := range []netip.Addr{first, last, first.Prev(), last.Next()} {
				if !a.IsValid() {
					continue
				}
				if byPrefix, byRange := in(a); byPrefix != byRange {
					t.Fatalf("%s: in the prefixes %v, in the ranges %v", a, byPrefix, byRange)
				}
			}
		}
	})
}

func TestIntervalsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ipv6 := rapid.Bool().Draw(t, "ipv6")
		ranges := rangesOf(rapid.SliceOfN(prefixGen(ipv6), 0, 8).Draw(t, "prefixes"), ipv6)
		elements := intervals(ranges)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(elements), func(i, j int) { elements[i], elements[j] = elements[j], elements[i] })
		if got := fromIntervals(elements, ipv6); fmt.Sprint(got) != fmt.Sprint(ranges) {
			t.Fatalf("%v became %v", ranges, got)
		}
	})
}

func TestLastAddr(t *testing.T) {
	for prefix, want := range map[string]string{
		"10.1.2.3/32": "10.1.2.3", "10.1.2.3/31": "10.1.2.3", "10.1.2.0/23": "10.1.3.255", "0.0.0.0/0": "255.255.255.255",
		"fd00::/127": "fd00::1", "fd00::/65": "fd00::7fff:ffff:ffff:ffff", "::/0": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	} {
		if got := lastAddr(netip.MustParsePrefix(prefix)); got.String() != want {
			t.Errorf("last of %s is %s, want %s", prefix, got, want)
		}
	}
}

func TestMasqueradeComments(t *testing.T) {
	p := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	base := Node{Sources: p("10.1.0.0/24"), Pools: p("10.1.0.0/16", "10.2.0.0/16")}
	comment := func(n Node) string {
		return strings.Join(commentsOf(familiesOf(n)), "|")
	}
	for name, same := range map[string]Node{
		"other order":    {Sources: base.Sources, Pools: p("10.2.0.0/16", "10.1.0.0/16")},
		"twice":          {Sources: p("10.1.0.0/24", "10.1.0.0/24"), Pools: base.Pools},
		"covered":        {Sources: base.Sources, Pools: append(p("10.1.7.0/24"), base.Pools...)},
		"not of a table": {Sources: base.Sources, Pools: base.Pools, IPv4: true, Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1")}},
	} {
		if comment(same) != comment(base) {
			t.Errorf("%s: %q, want %q", name, comment(same), comment(base))
		}
	}
	seen := map[string]string{comment(base): "base"}
	for name, other := range map[string]Node{
		"fewer pools":  {Sources: base.Sources, Pools: base.Pools[:1]},
		"more sources": {Sources: p("10.1.0.0/23"), Pools: base.Pools},
		"dual":         {Sources: p("10.1.0.0/24", "fd00::/64"), Pools: base.Pools},
		"ipv6 only":    {Sources: p("fd00::/64"), Pools: base.Pools},
		"none":         {Pools: base.Pools},
	} {
		c := comment(other)
		if twin, dup := seen[c]; dup {
			t.Errorf("%s and %s have the same comment %q", name, twin, c)
		}
		seen[c] = name
	}
}

func TestSysctlPath(t *testing.T) {
	for key, want := range map[string]string{
		"net.ipv4.conf.eth0.arp_filter":      "net/ipv4/conf/eth0/arp_filter",
		"net.ipv4.conf.eth0/100.arp_filter":  "net/ipv4/conf/eth0.100/arp_filter",
		"net/ipv4/conf/eth0.100/arp_filter":  "net/ipv4/conf/eth0.100/arp_filter",
		"net/ipv4/ip_forward":                "net/ipv4/ip_forward",
		"net.core.somaxconn":                 "net/core/somaxconn",
		"kernel.hostname":                    "",
		"net":                                "",
		"net.ipv4":                           "",
		"net.ipv4.":                          "",
		"net/../kernel/hostname":             "",
		"net.//.kernel.hostname":             "", // the dots of a path, as slashes
		"/net/ipv4/ip_forward":               "",
		"net/ipv4/./ip_forward":              "",
		"":                                   "",
		"network.ipv4.ip_forward":            "",
		"net.ipv4.conf.eth0.arp_filter\x00x": "net/ipv4/conf/eth0/arp_filter\x00x", // refused by open(2)
	} {
		got, err := sysctlPath(key)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, error %v, want %q", key, got, err, want)
		}
	}
}

func FuzzSysctlPathStaysBelowNet(f *testing.F) {
	for _, s := range []string{"net.ipv4.ip_forward", "net/../x", "net.//.x", "net...", "net/ipv4/conf/a.b/c", "net./.x.y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		path, err := sysctlPath(key)
		if err != nil {
			return
		}
		if !strings.HasPrefix(path, "net/") {
			t.Errorf("%q leads to %q", key, path)
		}
		for _, part := range strings.Split(path, "/") {
			if part == ".." || part == "." || part == "" {
				t.Errorf("%q leads to %q", key, path)
			}
		}
	})
}

// FuzzParse: whatever an answer holds, it is parsed or refused.
func FuzzParse(f *testing.F) {
	for _, req := range []*message{
		addVeth(attach.Plan{HostIfname: "weft0", Ifname: "eth0", MTU: 1500}, &Netns{}),
		setAlias("weft0", 1, "weft a b"), setNoLinkLocal("weft0", 1), setProxyARP("weft0", 1),
		addAddress(netip.MustParsePrefix("fd00::1/128"), "eth0", 1),
		addRoute(attach.Route{Dst: netip.MustParsePrefix("10.0.0.0/8"), Gateway: netip.MustParseAddr("10.0.0.1"), MTU: 1300}, "eth0", 1),
		addNeighbour(attach.Neighbour{Addr: netip.MustParseAddr("10.0.0.1")}, "eth0", 1),
		addVXLAN("weft-vxlan", topology.Link{VNI: 7, Port: 8472, Local: netip.MustParseAddr("192.0.2.1"), MTU: 1450}),
		addVXLAN("weft-vxlan6", topology.Link{VNI: 7, Port: 8472, Local: netip.MustParseAddr("fd00::1"), MTU: 1450}),
		(&routeWriter{}).newRoute(routeOp{
			Key:  topology.RouteKey{Dst: netip.MustParsePrefix("10.42.5.0/24")},
			Want: topology.Route{Gateway: netip.MustParseAddr("fd00::1"), Dev: "eth0"},
		}, create),
	} {
		f.Add(req.req.Serialize()[unix.SizeofNlMsghdr:])
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		if l, err := parseLink(body); err == nil && l.ours() && l.kind != kindVeth {
			t.Errorf("ours, though of kind %q", l.kind)
		}
		_, _ = parseAddress(body)
		_, _ = parseRoute(body)
		_, _ = parseNeighbour(body)
		elements, _ := parseElements(body)
		fromIntervals(elements, false)
		_, _ = ruleComment(body)
		if len(body) >= 4 {
			m := &message{op: "x"}
			_ = m.outcome(syscall.NetlinkMessage{Header: syscall.NlMsghdr{
				Type: unix.NLMSG_ERROR, Flags: uint16(body[0])<<8 | unix.NLM_F_ACK_TLVS}, Data: body})
		}
	})
}

// TestRequestsReadBack: what we write is what we read, field by field.
func TestRequestsReadBack(t *testing.T) {
	body := func(m *message) []byte { return m.req.Serialize()[unix.SizeofNlMsghdr:] }
	table := 100_000
	r, err := parseRoute(body(addRoute(attach.Route{
		Dst: netip.MustParsePrefix("10.96.0.0/12"), Gateway: netip.MustParseAddr("169.254.1.1"),
		MTU: 1300, AdvMSS: 1200, Priority: 50, Table: &table}, "eth0", 7)))
	want := route{dst: netip.MustParsePrefix("10.96.0.0/12"), gateway: netip.MustParseAddr("169.254.1.1"), oif: 7, table: table,
		priority: 50, mtu: 1300, advMSS: 1200, kind: unix.RTN_UNICAST, protocol: unix.RTPROT_STATIC, onlink: true}
	if err != nil || r != want {
		t.Errorf("route %+v, error %v, want %+v", r, err, want)
	}
	a, err := parseAddress(body(addAddress(netip.MustParsePrefix("fd00::1/128"), "eth0", 7)))
	if err != nil || a != (address{prefix: netip.MustParsePrefix("fd00::1/128"), index: 7, flags: unix.IFA_F_NODAD}) {
		t.Errorf("address %+v, error %v", a, err)
	}
	neigh := attach.Neighbour{Addr: netip.MustParseAddr("fd00::1"), MAC: attach.HostMAC}
	n, err := parseNeighbour(body(addNeighbour(neigh, "eth0", 7)))
	if err != nil || n != (neighbour{Neighbour: neigh, index: 7, family: unix.AF_INET6, plain: true, permanent: true, valid: true}) {
		t.Errorf("neighbour %+v, error %v", n, err)
	}
	l, err := parseLink(body(addVeth(attach.Plan{HostIfname: "weft0", Ifname: "eth0", MTU: 1450, HostMAC: attach.HostMAC}, &Netns{})))
	if err != nil || l != (link{name: "weft0", kind: kindVeth, mac: attach.HostMAC, mtu: 1450}) {
		t.Errorf("link %+v, error %v", l, err)
	}
}

func TestOpErrorText(t *testing.T) {
	for want, e := range map[string]*OpError{
		"add route x: file exists":                            {Op: "add route", Object: "x", Err: unix.EEXIST},
		"list links: file exists":                             {Op: "list links", Err: unix.EEXIST},
		"add route x: file exists (kernel: Nexthop is bogus)": {Op: "add route", Object: "x", Message: "Nexthop is bogus", Err: unix.EEXIST},
	} {
		if e.Error() != want || !errors.Is(e, unix.EEXIST) {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
}

// TestAckText reads the kernel's words whether or not it echoes the request.
func TestAckText(t *testing.T) {
	words := nl.NewRtAttr(nl.NLMSGERR_ATTR_MSG, nl.ZeroTerminated("no way")).Serialize()
	errno := nl.Uint32Attr(uint32(0xffffffff - 21)) // -22
	header := func(length int) []byte {
		return append(nl.Uint32Attr(uint32(length)), make([]byte, unix.SizeofNlMsghdr-4)...)
	}
	for name, c := range map[string]struct {
		flags uint16
		data  []byte
		want  string
	}{
		"capped":   {unix.NLM_F_ACK_TLVS | unix.NLM_F_CAPPED, append(append(errno, header(99)...), words...), "no way"},
		"echoed":   {unix.NLM_F_ACK_TLVS, append(append(append(errno, header(20)...), 1, 2, 3, 4), words...), "no way"},
		"no words": {0, append(errno, header(16)...), ""},
		"cut":      {unix.NLM_F_ACK_TLVS, append(errno, header(4000)...), ""},
	} {
		m := &message{op: "add", object: "x"}
		err := m.outcome(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NLMSG_ERROR, Flags: c.flags}, Data: c.data})
		var e *OpError
		if !errors.As(err, &e) || !errors.Is(err, unix.EINVAL) || e.Message != c.want {
			t.Errorf("%s: %v, want EINVAL and %q", name, err, c.want)
		}
	}
}
