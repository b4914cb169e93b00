// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Tries and interval of Ping, and of Ask by UDP. The first request may be lost
// while a segment of the underlay resolves its neighbours; three in a row may
// not.
const (
	tries    = 3
	interval = time.Second
)

// Ping sends up to three echo requests, one second apart, and returns the
// round-trip time of the first that is answered. It needs CAP_NET_RAW. An
// address that stays silent is a NoReplyError. The mark is sent along; a
// Witness knows the request by it.
func Ping(ctx context.Context, dst netip.Addr, mark string) (time.Duration, error) {
	fd, err := rawSocket(dst.Is4())
	if err != nil {
		return 0, fmt.Errorf("ping %s: %w", dst, err)
	}
	defer unix.Close(fd)
	request := echo{ID: uint16(os.Getpid()), Payload: payload(dst, mark)}
	for range tries {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("ping %s: %w", dst, err)
		}
		request.Seq++
		start := time.Now()
		if err := unix.Sendto(fd, request.request(dst), 0, sockaddr(dst)); err != nil {
			return 0, fmt.Errorf("ping %s: send: %w", dst, err)
		}
		answered := func(from netip.Addr, got echo) bool {
			return from == dst && got.ID == request.ID && got.Seq == request.Seq && bytes.Equal(got.Payload, request.Payload)
		}
		_, ok, err := await(fd, dst.Is4(), echoReply, start.Add(interval), answered)
		if err != nil {
			return 0, fmt.Errorf("ping %s: receive: %w", dst, err)
		}
		if ok {
			return time.Since(start), nil
		}
	}
	return 0, &NoReplyError{Addr: dst, Sent: tries}
}

// payload makes a request one of ours, to one address, with one mark.
func payload(dst netip.Addr, mark string) []byte {
	return []byte("weft lab probe " + dst.String() + " " + mark)
}

// Witness sees the echo requests that arrive in one network namespace, and so
// what no reply tells: the source that they arrive with.
type Witness struct {
	fd  int
	dst netip.Addr
}

// NewWitness watches an address of the namespace of the calling thread, from
// now on. It needs CAP_NET_RAW.
func NewWitness(dst netip.Addr) (*Witness, error) {
	fd, err := rawSocket(dst.Is4())
	if err != nil {
		return nil, fmt.Errorf("watch pings of %s: %w", dst, err)
	}
	return &Witness{fd: fd, dst: dst}, nil
}

// Source returns where the request with that mark came from. It is asked after
// the reply, when the request has long arrived.
func (w *Witness) Source(mark string) (netip.Addr, error) {
	want := payload(w.dst, mark)
	marked := func(_ netip.Addr, got echo) bool { return bytes.Equal(got.Payload, want) }
	source, ok, err := await(w.fd, w.dst.Is4(), echoRequest, time.Now().Add(interval), marked)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("watch pings of %s: %w", w.dst, err)
	case !ok:
		return netip.Addr{}, fmt.Errorf("watch pings of %s: none arrived", w.dst)
	}
	return source, nil
}

// Close ends the watch.
func (w *Witness) Close() { unix.Close(w.fd) }

// rawSocket opens a raw socket: the unprivileged kind depends on a sysctl
// (net.ipv4.ping_group_range) that is off in a new namespace.
func rawSocket(ipv4 bool) (int, error) {
	family, proto := unix.AF_INET6, unix.IPPROTO_ICMPV6
	if ipv4 {
		family, proto = unix.AF_INET, unix.IPPROTO_ICMP
	}
	return unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

// await reads until a message of the kind comes that is the one, and returns
// its source, or until the time is over.
func await(fd int, ipv4 bool, kind echoKind, end time.Time, isIt func(from netip.Addr, got echo) bool) (netip.Addr, bool, error) {
	buf := make([]byte, 2048)
	for {
		left := time.Until(end)
		if left <= 0 {
			return netip.Addr{}, false, nil
		}
		timeout := unix.NsecToTimeval(int64(max(left, time.Microsecond)))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			return netip.Addr{}, false, err
		}
		n, sender, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return netip.Addr{}, false, err
		}
		from := fromAddr(sender)
		if got, ok := parseEcho(buf[:n], ipv4, kind); ok && isIt(from, got) {
			return from, true, nil
		}
	}
}

func fromAddr(sa unix.Sockaddr) netip.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}
