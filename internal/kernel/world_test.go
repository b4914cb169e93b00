// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
)

// world is a host with a Handle, in a namespace of its own.
type world struct {
	testing.TB
	host *nstest.NS
	h    *kernel.Handle
	pods int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	nstest.Need(t, "veth")
	w := &world{TB: t, host: nstest.New(t)}
	w.host.Do(func() {
		h, err := kernel.Open()
		if err != nil {
			t.Fatal(err)
		}
		w.h = h
		// A node has addresses of its own, by which it speaks to its pods.
		lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}}
		for _, a := range []string{nodeAddr4.String() + "/32", nodeAddr6.String() + "/128"} {
			addr, err := netlink.ParseAddr(a)
			if err == nil {
				err = netlink.AddrAdd(lo, addr)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		awaitLocal(t, nodeAddr6)
	})
	t.Cleanup(w.h.Close)
	return w
}

// awaitLocal returns once the calling thread's namespace answers for an IPv6
// address: the kernel puts it to use a little after it was added.
func awaitLocal(t testing.TB, a netip.Addr) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		routes, err := netlink.RouteGet(a.AsSlice())
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
	}
	t.Fatalf("address %s is not in use after %s", a, patience)
}

// pod is a sandbox with the plan for its only attachment.
type pod struct {
	*nstest.NS
	ns   *kernel.Netns
	plan attach.Plan
}

func openNetns(t testing.TB, path string) *kernel.Netns {
	t.Helper()
	ns, err := kernel.OpenNetns(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// newPod plans a pod with the given addresses, and a default route per family.
func (w *world) newPod(addrs ...string) *pod {
	w.Helper()
	w.pods++
	spec := attach.Spec{
		Key:      attach.Key{Network: "mynet", ContainerID: fmt.Sprintf("c%d", w.pods), Ifname: "eth0"},
		Instance: "/run/weft", MTU: 1450, Pod: attach.Pod{Namespace: "default", Name: "web"},
	}
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		spec.Addresses = append(spec.Addresses, attach.Address{Addr: a, Gateway: gatewayFor(a)})
		spec.Routes = append(spec.Routes, attach.Route{Dst: defaultRoute(a)})
	}
	p, err := attach.NewPlan(spec)
	if err != nil {
		w.Fatal(err)
	}
	ns := nstest.New(w)
	return &pod{NS: ns, ns: openNetns(w, ns.Path), plan: p}
}

var (
	nodeAddr4 = netip.MustParseAddr("192.0.2.10")
	nodeAddr6 = netip.MustParseAddr("2001:db8::10")

	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fd00:42::1")
)

func gatewayFor(a netip.Addr) netip.Addr {
	if a.Is4() {
		return gateway4
	}
	return gateway6
}

func defaultRoute(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.MustParsePrefix("0.0.0.0/0")
	}
	return netip.MustParsePrefix("::/0")
}

// attached is newPod and Attach.
func (w *world) attached(addrs ...string) *pod {
	w.Helper()
	p := w.newPod(addrs...)
	w.attach(p)
	return p
}

func (w *world) attach(p *pod) {
	w.Helper()
	if err := w.h.Attach(p.ns, p.plan); err != nil {
		w.Fatal(err)
	}
}

// addr returns the first address of the pod of the same family as like.
func (p *pod) addr(like netip.Addr) netip.Addr {
	for _, a := range p.plan.Addresses {
		if a.Addr().Is4() == like.Is4() {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

// noDifference fails the test if the kernel is not as planned.
func (w *world) noDifference(p *pod, opts ...kernel.CompareOptions) {
	w.Helper()
	diffs, err := w.h.Compare(p.ns, p.plan, opts...)
	if err != nil {
		w.Fatal(err)
	}
	for _, d := range diffs {
		w.Errorf("difference: %s", d)
	}
}

func (w *world) linkExists(name string) bool {
	w.Helper()
	found, err := w.h.LinkExists(name)
	if err != nil {
		w.Fatal(err)
	}
	return found
}

// patience bounds how long a packet may be under way. It is far longer than
// any packet takes, and spent only when a test fails.
const patience = 15 * time.Second

// exchange sends a UDP packet from one namespace to an address in another and
// an answer back. It returns the source that the server saw.
func exchange(t testing.TB, from, to *nstest.NS, dst netip.Addr) (netip.Addr, error) {
	t.Helper()
	var server, client *net.UDPConn
	to.Do(func() {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 0)))
		if err != nil {
			t.Fatal(err)
		}
		server = c
	})
	defer server.Close()
	from.Do(func() {
		c, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		client = c
	})
	defer client.Close()
	return converse(server, client)
}

// converse asks until the question arrives: a datagram may be lost, for
// example while the kernel still joins the multicast group that IPv6 neighbour
// discovery needs.
func converse(server, client *net.UDPConn) (netip.Addr, error) {
	deadline := time.Now().Add(patience)
	buf := make([]byte, 64)
	for {
		if _, err := client.Write([]byte("question")); err != nil && time.Now().After(deadline) {
			return netip.Addr{}, fmt.Errorf("client: %w", err)
		}
		if err := server.SetReadDeadline(time.Now().Add(patience / 30)); err != nil {
			return netip.Addr{}, err
		}
		_, src, err := server.ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			return netip.Addr{}, fmt.Errorf("server: %w", err)
		}
		if _, err := server.WriteToUDPAddrPort([]byte("answer"), src); err != nil {
			return netip.Addr{}, err
		}
		if err := client.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return netip.Addr{}, err
		}
		if _, err := client.Read(buf); err != nil {
			return netip.Addr{}, fmt.Errorf("client: %w", err)
		}
		return src.Addr().Unmap(), nil
	}
}

// stream moves some data over TCP, enough for full-size segments.
func stream(t testing.TB, from, to *nstest.NS, dst netip.Addr) error {
	t.Helper()
	var listener *net.TCPListener
	to.Do(func() {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(dst, 0)))
		if err != nil {
			t.Fatal(err)
		}
		listener = l
	})
	defer listener.Close()
	const size = 256 << 10
	received := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			var n int64
			if n, err = io.Copy(io.Discard, conn); err == nil && n != size {
				err = fmt.Errorf("%d bytes arrived, want %d", n, size)
			}
		}
		received <- err
	}()
	var err error
	from.Do(func() {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", listener.Addr().String(), patience); err != nil {
			return
		}
		_, err = conn.Write(make([]byte, size))
		err = errors.Join(err, conn.Close())
	})
	if err != nil {
		return err
	}
	return <-received
}

// ping sends one ICMP echo request, no second one, and waits for the reply.
func ping(t testing.TB, from *nstest.NS, dst netip.Addr) error {
	t.Helper()
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if dst.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	var conn *net.IPConn
	from.Do(func() {
		c, err := net.DialIP(network, nil, &net.IPAddr{IP: dst.AsSlice(), Zone: dst.Zone()})
		if err != nil {
			t.Fatal(err)
		}
		conn = c
	})
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	msg := []byte{request, 0, 0, 0, 'w', 'e', 0, 1, 'w', 'e', 'f', 't'}
	binary.BigEndian.PutUint16(msg[2:], checksum(msg)) // the kernel does it for ICMPv6
	if _, err := conn.Write(msg); err != nil {
		return err
	}
	buf := make([]byte, 256)
	for {
		n, _, err := conn.ReadFrom(buf) // unlike Read it strips the IPv4 header
		if err != nil {
			return err
		}
		if n >= 8 && buf[0] == reply && buf[4] == 'w' && buf[5] == 'e' {
			return nil
		}
	}
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// writeProc sets a kernel parameter inside a namespace.
func writeProc(t testing.TB, n *nstest.NS, key, value string) {
	t.Helper()
	n.Do(func() {
		if err := os.WriteFile("/proc/sys/"+key, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	})
}

// sniff collects every frame that passes any interface of a namespace until
// fn has returned and the wire has been silent for a moment.
func sniff(t testing.TB, n *nstest.NS, fn func()) [][]byte {
	t.Helper()
	fd := -1
	n.Do(func() {
		all := uint16(unix.ETH_P_ALL)
		s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all<<8|all>>8))
		if err != nil {
			t.Fatal(err)
		}
		fd = s
	})
	defer unix.Close(fd)
	silence := unix.NsecToTimeval(int64(400 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &silence); err != nil {
		t.Fatal(err)
	}
	fn()
	var frames [][]byte
	buf := make([]byte, 2048)
	for {
		length, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return frames
		}
		frames = append(frames, append([]byte(nil), buf[:length]...))
	}
}
