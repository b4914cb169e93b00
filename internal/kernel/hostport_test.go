// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
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
