// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// answerDeadline bounds one exchange, in either direction.
const answerDeadline = 3 * time.Second

// maxAnswer is the longest answer in bytes.
const maxAnswer = 512

// Answer is what a server says of itself and of its client.
type Answer struct {
	Server string         // the name it was given
	Seen   netip.AddrPort // the client's address as the server sees it
}

// String is the answer on the wire: "<server> sees <address:port>\n".
func (a Answer) String() string { return fmt.Sprintf("%s sees %s\n", a.Server, a.Seen) }

// ParseAnswer is the inverse of String.
func ParseAnswer(s string) (Answer, error) {
	server, seen, ok := strings.Cut(strings.TrimSuffix(s, "\n"), " sees ")
	if !ok || server == "" {
		return Answer{}, fmt.Errorf("answer %q: want \"<server> sees <address>\"", s)
	}
	addr, err := netip.ParseAddrPort(seen)
	if err != nil {
		return Answer{}, fmt.Errorf("answer %q: %w", s, err)
	}
	return Answer{Server: server, Seen: addr}, nil
}

// Server answers on one port, over TCP and UDP, IPv4 and IPv6, with its name
// and the client's address.
type Server struct {
	name string
	tcp  *net.TCPListener
	udp  *net.UDPConn
}

// Listen opens the port, 1 to 65535, or any free one for 0. When it returns
// clients can connect.
func Listen(name string, port uint16) (*Server, error) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{Port: int(port)})
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	port = tcp.Addr().(*net.TCPAddr).AddrPort().Port()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
	if err != nil {
		return nil, fmt.Errorf("serve: %w", errors.Join(err, tcp.Close()))
	}
	s := &Server{name: name, tcp: tcp, udp: udp}
	if err := wantDestination(udp); err != nil {
		s.close()
		return nil, fmt.Errorf("serve: %w", err)
	}
	return s, nil
}

// close may be called again; that the sockets were closed already is no news.
func (s *Server) close() {
	_ = s.tcp.Close()
	_ = s.udp.Close()
}

// wantDestination asks the kernel to tell with each datagram which address it
// was sent to. On a host with several addresses the answer must come from that
// one; left alone, the kernel takes the address of the interface it leaves by.
func wantDestination(udp *net.UDPConn) error {
	raw, err := udp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	return errors.Join(err, failed)
}

// Port returns the port in use.
func (s *Server) Port() uint16 { return s.tcp.Addr().(*net.TCPAddr).AddrPort().Port() }

// Run serves until the context ends, which is no error.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.close)
	defer stop()
	failed := make(chan error, 2)
	go func() { failed <- s.runTCP() }()
	go func() { failed <- s.runUDP() }()
	first := <-failed
	s.close()
	err := errors.Join(first, <-failed)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

func (s *Server) runTCP() error {
	for {
		conn, err := s.tcp.AcceptTCP()
		if err != nil {
			return err
		}
		// The answer fits any socket buffer, so this does not block on the peer.
		_ = conn.SetDeadline(time.Now().Add(answerDeadline))
		_, _ = conn.Write([]byte(s.answer(conn.RemoteAddr().(*net.TCPAddr).AddrPort())))
		_ = conn.Close()
	}
}

func (s *Server) runUDP() error {
	buf, oob := make([]byte, 1), make([]byte, 128)
	for {
		_, n, _, from, err := s.udp.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			return err
		}
		_, _, _ = s.udp.WriteMsgUDPAddrPort([]byte(s.answer(from)), sameSource(oob[:n]), from)
	}
}

// sameSource turns what wantDestination asked for into the request to send
// from that address. It serves IPv4 too, in the IPv6 form of its addresses.
// The interface is left to the routing table.
func sameSource(oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo {
			var info unix.Inet6Pktinfo
			copy(info.Addr[:], m.Data)
			return unix.PktInfo6(&info)
		}
	}
	return nil
}

// answer shows an IPv4 client as IPv4: on a socket that takes both families
// the kernel reports it in its IPv6 form.
func (s *Server) answer(from netip.AddrPort) string {
	return Answer{Server: s.name, Seen: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}.String()
}

// Ask asks a Server at that address over "tcp" or "udp". A datagram, or the
// answer to it, can be lost; then it is sent again.
func Ask(ctx context.Context, network string, server netip.AddrPort) (Answer, error) {
	if network != "tcp" && network != "udp" {
		return Answer{}, fmt.Errorf("ask %s: network %q: want tcp or udp", server, network)
	}
	ctx, cancel := context.WithTimeout(ctx, answerDeadline)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, server.String())
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", server, err)
	}
	defer func() { _ = conn.Close() }()
	var line string
	if network == "udp" {
		line, err = askDatagrams(conn)
	} else {
		deadline, _ := ctx.Deadline()
		_ = conn.SetDeadline(deadline)
		line, err = bufio.NewReader(io.LimitReader(conn, maxAnswer)).ReadString('\n')
	}
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", server, err)
	}
	return ParseAnswer(line)
}

func askDatagrams(conn net.Conn) (string, error) {
	buf := make([]byte, maxAnswer)
	var n int
	var err error
	for range tries {
		if _, err = conn.Write([]byte{'?'}); err != nil {
			return "", err
		}
		_ = conn.SetReadDeadline(time.Now().Add(interval))
		if n, err = conn.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return string(buf[:n]), err
}
