// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
)

// mapped plans and attaches a pod with ports.
func (w *world) mapped(ports []attach.Port, addrs ...string) *pod {
	w.Helper()
	p := w.newPod(addrs...)
	w.mapOnto(p, ports)
	w.attach(p)
	return p
}

// mapOnto gives the plan of a pod ports.
func (w *world) mapOnto(p *pod, ports []attach.Port) {
	w.Helper()
	var addrs []attach.Address
	for _, a := range p.plan.HostRoutes {
		addrs = append(addrs, attach.Address{Addr: a.Addr()})
	}
	var err error
	if p.plan.Ports, err = attach.Mappings(ports, addrs); err != nil {
		w.Fatal(err)
	}
}

func port(protocol attach.Protocol, hostIP string, host, container uint16) attach.Port {
	p := attach.Port{Protocol: protocol, HostPort: host, ContainerPort: container}
	if hostIP != "" {
		p.HostIP = netip.MustParseAddr(hostIP)
	}
	return p
}

const (
	dialPatience    = 3 * time.Second
	refusalPatience = 700 * time.Millisecond
)

// serve answers on a port inside a pod, over TCP or UDP, with a name and the
// address that it sees the client by.
func serve(t testing.TB, n *nstest.NS, protocol attach.Protocol, at uint16, name string) {
	t.Helper()
	n.Do(func() {
		if protocol == attach.UDP {
			c, err := net.ListenUDP("udp", &net.UDPAddr{Port: int(at)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			go answerUDP(c, name)
			return
		}
		l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: int(at)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go answerTCP(l, name)
	})
}

func answerTCP(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		_, _ = fmt.Fprintf(c, "%s %s", name, from)
		_ = c.Close()
	}
}

func answerUDP(c *net.UDPConn, name string) {
	buf := make([]byte, 64)
	for {
		_, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		// The kernel chooses the source by itself, so an answer from another
		// address than the one asked would not arrive.
		_, _ = c.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %s", name, from.Addr().Unmap()), from)
	}
}

// ask returns what a server says: who it is, and by which address it sees us.
func ask(n *nstest.NS, protocol attach.Protocol, to string, within time.Duration) (name, seen string, err error) {
	n.Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout(protocol.String(), to, within); err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(within))
		if protocol == attach.UDP {
			_, _ = c.Write([]byte("who"))
		}
		buf := make([]byte, 128)
		var k int
		if k, err = c.Read(buf); k > 0 {
			err = nil
		}
		name, seen, _ = strings.Cut(string(buf[:k]), " ")
	})
	return name, seen, err
}

// outside is a machine on a link of the node's.
type outside struct{ *nstest.NS }

var (
	uplinkAddr4, outsideAddr4 = "198.51.100.1", "198.51.100.9"
	uplinkAddr6, outsideAddr6 = "2001:db8:1::1", "2001:db8:1::9"
)

func (w *world) newOutside() outside {
	w.Helper()
	o := outside{nstest.New(w)}
	f, err := os.Open(o.Path)
	if err != nil {
		w.Fatal(err)
	}
	defer f.Close()
	w.host.Do(func() {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(f.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			w.Fatal(err)
		}
	})
	w.host.Do(func() { setUplink(w, "uplink0", uplinkAddr4+"/24", uplinkAddr6+"/64") })
	o.Do(func() {
		setUplink(w, "eth0", outsideAddr4+"/24", outsideAddr6+"/64")
		routeVia(w, uplinkAddr4)
		routeVia(w, uplinkAddr6)
	})
	return o
}

func setUplink(t testing.TB, name string, addrs ...string) {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	for _, s := range addrs {
		var a *netlink.Addr
		if err == nil {
			a, err = netlink.ParseAddr(s)
		}
		if err == nil {
			a.Flags = 2 // IFA_F_NODAD
			err = netlink.AddrAdd(l, a)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func routeVia(t testing.TB, gateway string) {
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) ruleset() string {
	w.Helper()
	var out []byte
	var err error
	w.host.Do(func() { out, err = exec.Command("nft", "list", "ruleset").CombinedOutput() })
	if err != nil {
		w.Fatalf("nft: %v: %s", err, out)
	}
	return string(out)
}

var dual = []string{"10.42.3.7", "fd00:42:3::7"}

// TestHostPortsReachThePod asks from everywhere, over both families and both
// protocols, and looks by which address the pod sees the client.
func TestHostPortsReachThePod(t *testing.T) {
	w := newWorld(t)
	w.ensure(testNode())
	out := w.newOutside()
	writeProc(t, w.host, "net/ipv4/conf/all/rp_filter", "1") // as many distributions have it
	ports := []attach.Port{port(attach.TCP, "", 8080, 80), port(attach.UDP, "", 5353, 53), port(attach.SCTP, "", 9000, 90)}
	server := w.mapped(ports, dual...)
	w.noDifference(server)
	other := w.attached("10.42.3.8", "fd00:42:3::8")
	serve(t, server.NS, attach.TCP, 80, "pod")
	serve(t, server.NS, attach.UDP, 53, "pod")

	for _, c := range []struct {
		name   string
		from   *nstest.NS
		to     string
		seenBy string // "": any of the node's
	}{
		{"another machine", out.NS, uplinkAddr4, outsideAddr4},
		{"another machine, IPv6", out.NS, uplinkAddr6, outsideAddr6},
		{"another machine, the node's other address", out.NS, nodeAddr4.String(), outsideAddr4},
		{"the host", w.host, nodeAddr4.String(), ""},
		{"the host, IPv6", w.host, nodeAddr6.String(), ""},
		{"the host's loopback", w.host, "127.0.0.1", ""},
		{"the host's loopback, another address", w.host, "127.1.2.3", ""},
		{"another pod", other.NS, nodeAddr4.String(), "10.42.3.8"},
		{"another pod, IPv6", other.NS, uplinkAddr6, "fd00:42:3::8"},
		{"the pod itself", server.NS, uplinkAddr4, ""},
		{"the pod itself, IPv6", server.NS, uplinkAddr6, ""},
	} {
		for _, p := range ports[:2] {
			to := net.JoinHostPort(c.to, fmt.Sprint(p.HostPort))
			name, seen, err := ask(c.from, p.Protocol, to, dialPatience)
			if err != nil || name != "pod" || (c.seenBy != "" && seen != c.seenBy) {
				t.Errorf("%s, %s: %q sees %q, %v; want the pod, which sees %q", c.name, p, name, seen, err, c.seenBy)
			}
		}
	}
	rules := regexp.MustCompile(` comment "[^"]*"`).ReplaceAllString(w.ruleset(), "")
	for _, want := range []string{"sctp . 9000 : 10.42.3.7 . 90", "sctp . 9000 : fd00:42:3::7 . 90", "tcp . 8080 : 10.42.3.7 . 80"} {
		if !strings.Contains(rules, want) {
			t.Errorf("nft does not list %q:\n%s", want, rules)
		}
	}
	if err := w.h.Detach(server.plan.HostIfname); err != nil {
		t.Fatal(err)
	}
	if rules := w.ruleset(); strings.Contains(rules, kernel.HostPortTable) {
		t.Errorf("the table is left:\n%s", rules)
	}
	if _, _, err := ask(out.NS, attach.TCP, net.JoinHostPort(uplinkAddr4, "8080"), refusalPatience); err == nil {
		t.Error("the port still answers")
	}
	w.noDifference(other)
}

// A mapping takes only what is meant for it: not another port or protocol, not
// what the host forwards, not another address than its own.
func TestHostPortsTakeNothingElse(t *testing.T) {
	w := newWorld(t)
	w.ensure(testNode())
	out := w.newOutside()
	pod := w.mapped([]attach.Port{port(attach.TCP, "", 8080, 80), port(attach.TCP, uplinkAddr4, 8081, 80), port(attach.TCP, "127.0.0.1", 8082, 80)}, dual...)
	other := w.attached("10.42.3.8", "fd00:42:3::8")
	serve(t, pod.NS, attach.TCP, 80, "pod")
	serve(t, out.NS, attach.TCP, 8080, "outside")
	serve(t, w.host, attach.TCP, 8081, "host")
	serve(t, w.host, attach.TCP, 8082, "host")
	// What listens on loopback only, the pods must not reach.
	var private net.Listener
	w.host.Do(func() { private, _ = net.Listen("tcp", "127.0.0.1:9999") })
	defer private.Close()
	go answerTCP(private, "private")
	var private6 net.Listener
	w.host.Do(func() { private6, _ = net.Listen("tcp", "[::1]:8080") })
	defer private6.Close()
	go answerTCP(private6, "host6")

	for _, c := range []struct {
		name, to, want string
		from           *nstest.NS
	}{
		{"through the host, not to it", net.JoinHostPort(outsideAddr4, "8080"), "outside", other.NS},
		{"an address of its own", net.JoinHostPort(uplinkAddr4, "8081"), "pod", out.NS},
		{"another address", net.JoinHostPort(nodeAddr4.String(), "8081"), "host", out.NS},
		{"loopback only, from the host", "127.0.0.1:8082", "pod", w.host},
		{"loopback only, from outside", net.JoinHostPort(uplinkAddr4, "8082"), "host", out.NS},
		{"::1", "[::1]:8080", "host6", w.host},
		{"an unmapped port", net.JoinHostPort(uplinkAddr4, "8083"), "", out.NS},
	} {
		within := dialPatience
		if c.want == "" {
			within = refusalPatience
		}
		if name, _, err := ask(c.from, attach.TCP, c.to, within); name != c.want {
			t.Errorf("%s: %q answers (%v), want %q", c.name, name, err, c.want)
		}
	}
	// A pod with all the rights in its sandbox sends to the host's loopback.
	writeProc(t, pod.NS, "net/ipv4/conf/all/route_localnet", "1")
	pod.Do(func() {
		if out, err := exec.Command("ip", "address", "flush", "dev", "lo").CombinedOutput(); err != nil {
			t.Fatalf("ip: %v: %s", err, out)
		}
		_, all, _ := net.ParseCIDR("127.0.0.0/8")
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		err = netlink.RouteAdd(&netlink.Route{Dst: all, LinkIndex: eth.Attrs().Index, Gw: net.ParseIP(gateway4.String()), Flags: int(netlink.FLAG_ONLINK)})
		if err != nil {
			t.Fatal(err)
		}
	})
	if name, _, err := ask(pod.NS, attach.TCP, "127.0.0.1:9999", refusalPatience); err == nil {
		t.Errorf("a pod reaches %q on the host's loopback", name)
	}
	// It is the table's rules that keep it out, and nothing else.
	w.host.Do(func() {
		if out, err := exec.Command("nft", "flush", "chain", "inet", kernel.HostPortTable, "loopback").CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
	})
	if name, _, err := ask(pod.NS, attach.TCP, "127.0.0.1:9999", dialPatience); name != "private" {
		t.Errorf("without the rules %q answers, %v: this test proves nothing", name, err)
	}
}

// A UDP client that never pauses keeps its flow; it must follow the port all
// the same.
func TestUDPFlowsFollowThePort(t *testing.T) {
	for name, addrs := range map[string]struct{ node, first, second string }{
		"ipv4": {uplinkAddr4, "10.42.3.7", "10.42.3.8"},
		"ipv6": {uplinkAddr6, "fd00:42:3::7", "fd00:42:3::8"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ensure(testNode())
			out := w.newOutside()
			var client net.Conn
			out.Do(func() {
				c, err := net.Dial("udp", net.JoinHostPort(addrs.node, "5353"))
				if err != nil {
					t.Fatal(err)
				}
				client = c
			})
			defer client.Close()
			// Something on the host takes the packets without an answer, so that
			// there is a flow and no refusal.
			var sink *net.UDPConn
			w.host.Do(func() { sink, _ = net.ListenUDP("udp", &net.UDPAddr{Port: 5353}) })
			defer sink.Close()
			if who, err := answerOf(client, 300*time.Millisecond); err == nil {
				t.Fatalf("%q answers before there is a pod", who)
			}
			ports := []attach.Port{port(attach.UDP, "", 5353, 53)}
			first := w.mapped(ports, addrs.first)
			serve(t, first.NS, attach.UDP, 53, "first")
			if who, err := answerOf(client, dialPatience); who != "first" {
				t.Fatalf("after ADD %q answers, %v; want first", who, err)
			}
			if err := w.h.Detach(first.plan.HostIfname); err != nil {
				t.Fatal(err)
			}
			_, _ = client.Write([]byte("in between"))
			drain(client)
			second := w.mapped(ports, addrs.second)
			serve(t, second.NS, attach.UDP, 53, "second")
			if who, err := answerOf(client, dialPatience); who != "second" {
				t.Fatalf("after DEL and ADD of another %q answers, %v; want second", who, err)
			}
		})
	}
}

// drain takes what is still to be read of answers to earlier questions.
func drain(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	for buf := make([]byte, 64); ; {
		if _, err := c.Read(buf); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// answerOf sends on one socket, so from one port, until somebody answers.
func answerOf(c net.Conn, within time.Duration) (string, error) {
	buf := make([]byte, 64)
	for deadline := time.Now().Add(within); ; {
		_, _ = c.Write([]byte("who"))
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := c.Read(buf)
		if err == nil {
			who, _, _ := strings.Cut(string(buf[:n]), " ")
			return who, nil
		}
		if time.Now().After(deadline) {
			return "", err
		}
	}
}

func TestForeignFlowsStay(t *testing.T) {
	w := newWorld(t)
	w.ensure(testNode())
	out := w.newOutside()
	client := w.attached("10.42.3.8")
	serve(t, out.NS, attach.UDP, 5353, "outside")
	if name, _, err := ask(client.NS, attach.UDP, net.JoinHostPort(outsideAddr4, "5353"), dialPatience); name != "outside" {
		t.Fatal(name, err)
	}
	before := w.flowsTo(outsideAddr4)
	w.mapped([]attach.Port{port(attach.UDP, "", 5353, 53)}, "10.42.3.7")
	if after := w.flowsTo(outsideAddr4); before != 1 || after != 1 {
		t.Errorf("flows to another machine's port: %d, then %d; want 1", before, after)
	}
}

func (w *world) flowsTo(dst string) (n int) {
	w.Helper()
	w.host.Do(func() {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
		if err != nil {
			w.Fatal(err)
		}
		for _, f := range flows {
			if f.Forward.DstIP.String() == dst {
				n++
			}
		}
	})
	return n
}

// Whatever somebody takes away or changes is found and put back.
func TestMendHostPorts(t *testing.T) {
	nft := func(args ...string) func(w *world, p *pod) {
		return func(w *world, _ *pod) {
			w.host.Do(func() {
				if out, err := exec.Command("nft", args...).CombinedOutput(); err != nil {
					w.Fatalf("nft %v: %v: %s", args, err, out)
				}
			})
		}
	}
	for name, rob := range map[string]func(w *world, p *pod){
		"element":  nft("delete", "element", "inet", kernel.HostPortTable, "any4", "{ tcp . 8080 }"),
		"target":   nft("delete element inet " + kernel.HostPortTable + " any6 { udp . 5353 }; add element inet " + kernel.HostPortTable + " any6 { udp . 5353 : fd00::99 . 1 }"),
		"hairpin":  nft("flush", "set", "inet", kernel.HostPortTable, "hairpin4"),
		"rules":    nft("flush", "chain", "inet", kernel.HostPortTable, "ports"),
		"loopback": nft("flush", "chain", "inet", kernel.HostPortTable, "loopback"),
		"table":    nft("delete", "table", "inet", kernel.HostPortTable),
		"ruleset":  nft("flush", "ruleset"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ports := []attach.Port{port(attach.TCP, "", 8080, 80), port(attach.UDP, "", 5353, 53)}
			a := w.mapped(ports, dual...)
			b := w.mapped([]attach.Port{port(attach.TCP, "", 8081, 80)}, "10.42.3.8", "fd00:42:3::8")
			if n, err := w.h.Mend(a.plan); err != nil || n != 0 {
				t.Errorf("of a whole one: %d mended, %v", n, err)
			}
			rob(w, a)
			if diffs, err := w.h.Compare(a.ns, a.plan); err != nil || len(diffs) == 0 {
				t.Errorf("CHECK finds %v, %v", diffs, err)
			}
			for _, p := range []*pod{a, b} {
				if _, err := w.h.Mend(p.plan); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range []*pod{a, b} {
				w.noDifference(p)
				if n, err := w.h.Mend(p.plan); err != nil || n != 0 {
					t.Errorf("a second time: %d mended, %v", n, err)
				}
			}
		})
	}
}

// What the kernel leaves when a sandbox goes is removed, and only that.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	p := w.newPod(dual...)
	w.mapOnto(p, []attach.Port{port(attach.UDP, "", 5353, 53)})
	limit(p, 10_000_000)
	w.attach(p)
	q := w.newPod("10.42.3.8")
	w.mapOnto(q, []attach.Port{port(attach.TCP, "", 8081, 80)})
	limit(q, 10_000_000)
	w.attach(q)
	if gone, err := w.h.RemoveOrphans(); err != nil || len(gone) != 0 {
		t.Fatalf("of living pods %v was removed, %v", gone, err)
	}
	w.ip("link", "del", p.plan.HostIfname)
	gone, err := w.h.RemoveOrphans()
	if err != nil || len(gone) != 3 { // the shaper, the port in two families
		t.Errorf("%v was removed, %v; want three objects", gone, err)
	}
	for _, o := range gone {
		if o.HostIfname != p.plan.HostIfname || o.Key != (attach.Key{Network: "mynet", ContainerID: "c1", Ifname: "eth0"}) {
			t.Errorf("%+v is not the dead pod's", o)
		}
	}
	if w.linkExists(p.plan.Shaper) {
		t.Error("the shaper is left")
	}
	w.noDifference(q)
	w.ip("link", "del", q.plan.HostIfname)
	if _, err := w.h.RemoveOrphans(); err != nil {
		t.Fatal(err)
	}
	if rules := w.ruleset(); strings.Contains(rules, kernel.HostPortTable) {
		t.Errorf("the table is left:\n%s", rules)
	}
}

// A port that another instance took is refused by name; one whose holder is
// gone is not held.
func TestPortOfAnotherInstance(t *testing.T) {
	w := newWorld(t)
	ports := []attach.Port{port(attach.TCP, "", 8080, 80)}
	first := w.mapped(ports, "10.42.3.7")
	second := w.newPod("10.42.3.8")
	w.mapOnto(second, ports)
	err := w.h.Attach(second.ns, second.plan)
	var taken *kernel.PortTakenError
	if !errors.As(err, &taken) || !strings.Contains(err.Error(), "tcp 0.0.0.0:8080") || !strings.Contains(err.Error(), "mynet/c1/eth0") {
		t.Errorf("got %v", err)
	}
	if err := w.h.Detach(second.plan.HostIfname); err != nil {
		t.Fatal(err)
	}
	w.noDifference(first)
	w.ip("link", "del", first.plan.HostIfname)
	w.attach(second)
	w.noDifference(second)
}

// Owned tells the ports, so that they can be adopted.
func TestOwnedPorts(t *testing.T) {
	w := newWorld(t)
	p := w.mapped([]attach.Port{port(attach.TCP, "", 8080, 80), port(attach.UDP, uplinkAddr4, 53, 53)}, dual...)
	owned, err := w.h.Owned()
	if err != nil || len(owned) != 1 {
		t.Fatal(owned, err)
	}
	for _, m := range p.plan.Ports {
		found := false
		for _, have := range owned[0].Ports {
			found = found || have == m
		}
		if !found {
			t.Errorf("%s is not among %v", m, owned[0].Ports)
		}
	}
}

// Many come and go at once, from several processes' handles, and the table is
// there as long as it is needed.
func TestHostPortsConcurrently(t *testing.T) {
	w := newWorld(t)
	const pods, rounds = 6, 5
	var wg sync.WaitGroup
	errs := make(chan error, pods*rounds*2)
	for i := range pods {
		p := w.newPod(fmt.Sprintf("10.42.4.%d", i+1))
		w.mapOnto(p, []attach.Port{port(attach.TCP, "", uint16(8000+i), 80), port(attach.UDP, "", uint16(8000+i), 53)})
		var h *kernel.Handle
		w.host.Do(func() {
			var err error
			if h, err = kernel.Open(); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(h.Close)
		wg.Go(func() {
			for range rounds {
				if err := h.Attach(p.ns, p.plan); err != nil {
					errs <- err
					return
				}
				diffs, err := h.Compare(p.ns, p.plan)
				if err != nil || len(diffs) > 0 {
					errs <- fmt.Errorf("after ADD: %v, %w", diffs, err)
				}
				if err := h.Detach(p.plan.HostIfname); err != nil {
					errs <- err
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if rules := w.ruleset(); strings.Contains(rules, kernel.HostPortTable) {
		t.Errorf("the table is left:\n%s", rules)
	}
}
