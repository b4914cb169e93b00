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

// Tries and interval of Ping. The first request may be lost while a segment of
// the underlay resolves its neighbours; three in a row may not.
const (
	pingTries    = 3
	pingInterval = time.Second
)

// Ping sends up to three echo requests, one second apart, and returns the
// round-trip time of the first that is answered. It needs CAP_NET_RAW. An
// address that stays silent is a NoReplyError.
func Ping(ctx context.Context, dst netip.Addr) (time.Duration, error) {
	fd, err := rawSocket(dst)
	if err != nil {
		return 0, fmt.Errorf("ping %s: %w", dst, err)
	}
	defer unix.Close(fd)
	request := echo{ID: uint16(os.Getpid()), Payload: []byte("weft lab probe " + dst.String())}
	for range pingTries {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("ping %s: %w", dst, err)
		}
		request.Seq++
		start := time.Now()
		if err := unix.Sendto(fd, request.request(dst), 0, sockaddr(dst)); err != nil {
			return 0, fmt.Errorf("ping %s: send: %w", dst, err)
		}
		answered, err := awaitReply(fd, dst, request, start.Add(pingInterval))
		if err != nil {
			return 0, fmt.Errorf("ping %s: receive: %w", dst, err)
		}
		if answered {
			return time.Since(start), nil
		}
	}
	return 0, &NoReplyError{Addr: dst, Sent: pingTries}
}

// rawSocket opens a raw socket: the unprivileged kind depends on a sysctl
// (net.ipv4.ping_group_range) that is off in a new namespace.
func rawSocket(dst netip.Addr) (int, error) {
	family, proto := unix.AF_INET6, unix.IPPROTO_ICMPV6
	if dst.Is4() {
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

// awaitReply reads until the reply to this request comes or the time is over.
func awaitReply(fd int, dst netip.Addr, want echo, end time.Time) (bool, error) {
	buf := make([]byte, 2048)
	for {
		left := time.Until(end)
		if left <= 0 {
			return false, nil
		}
		timeout := unix.NsecToTimeval(int64(left))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			return false, err
		}
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, err
		}
		got, ok := parseReply(buf[:n], dst.Is4())
		if ok && fromAddr(from) == dst && got.ID == want.ID && got.Seq == want.Seq && bytes.Equal(got.Payload, want.Payload) {
			return true, nil
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
