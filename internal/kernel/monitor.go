// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/topology"
)

// Notice is something that the kernel reports, in the words of the drivers.
type Notice struct {
	// Kind is "links", "addresses", "neighbours", "fdb" or "routes"; "underlay"
	// where the result of Handle.Underlay may have changed; "pods" where a pod's
	// host routes may have gone; "" where anything may have happened unnoticed.
	Kind string
	// Key and Value are what the driver of the kind would observe. A nil Key
	// says that anything of the kind may have changed.
	Key, Value any
	Gone       bool // there is none any more; Value is nil
}

// monitorBuffer is the receive buffer in bytes, for bursts such as a link that
// takes thousands of routes along.
const monitorBuffer = 8 << 20

// monitorGroups are the multicast groups of rtnetlink, as bits.
const monitorGroups = unix.RTMGRP_LINK | unix.RTMGRP_NEIGH | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV4_ROUTE |
	unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE

// Monitor calls notify for whatever happens to our objects and to the underlay,
// until ctx ends, whose error it returns, or until it cannot go on. The first
// Notice says that anything may have happened before. Of pods it reports no more
// than that one may have gone.
func (h *Handle) Monitor(ctx context.Context, notify func(Notice)) error {
	f, err := h.subscribe()
	if err != nil {
		return fmt.Errorf("monitor the kernel: %w", err)
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("monitor the kernel: %w", err)
	}
	m := monitor{h: h, notify: notify}
	buf := make([]byte, receiveBuffer)
	for lost := true; ; {
		if lost {
			if err := m.restart(); err != nil {
				return fmt.Errorf("monitor the kernel: %w", err)
			}
		}
		n, err := receiveFrom(raw, buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lost = errors.Is(err, unix.ENOBUFS) || n > len(buf); lost {
			continue
		}
		if err != nil {
			return fmt.Errorf("monitor the kernel: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return fmt.Errorf("monitor the kernel: %w", err)
		}
		for _, msg := range messages {
			if err := m.take(msg); err != nil {
				return fmt.Errorf("monitor the kernel: %w", err)
			}
		}
	}
}

// subscribe opens a socket that the runtime's poller waits for.
func (h *Handle) subscribe() (f *os.File, err error) {
	err = h.inside(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, monitorBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, monitorBuffer)
		}
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: monitorGroups}); err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("subscribe to rtnetlink: %w", err)
		}
		f = os.NewFile(uintptr(fd), "rtnetlink")
		return nil
	})
	return f, err
}

// receiveFrom waits for a datagram. n is its length, also where buf is shorter.
func receiveFrom(raw syscall.RawConn, buf []byte) (n int, err error) {
	wait := raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_TRUNC)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	return n, errors.Join(wait, err)
}

// watched is what the monitor remembers of a link, to tell a change from news
// that say nothing new.
type watched struct {
	name   string
	mtu    int
	up     bool
	fabric bool // a VXLAN device of ours
}

// monitor turns messages into notices.
type monitor struct {
	h      *Handle
	notify func(Notice)
	links  map[int]watched // all but pods'
}

// restart reads what the messages rely on, and says that some may be missing.
func (m *monitor) restart() error {
	m.links = map[int]watched{}
	err := m.h.with(func(c *conn) error {
		links, err := c.dumpLinks("")
		for _, l := range links {
			if !l.ours() {
				m.links[l.index] = watch(l)
			}
		}
		return err
	})
	if err == nil {
		m.notify(Notice{})
	}
	return err
}

func watch(l link) watched {
	return watched{name: l.name, mtu: l.mtu, up: l.up, fabric: l.fabricDevice()}
}

func (m *monitor) take(msg syscall.NetlinkMessage) error {
	switch msg.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return m.link(msg.Data, msg.Header.Type == unix.RTM_DELLINK)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return m.address(msg.Data, msg.Header.Type == unix.RTM_DELADDR)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return m.neighbour(msg.Data, msg.Header.Type == unix.RTM_DELNEIGH)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return m.route(msg.Data, msg.Header.Type == unix.RTM_DELROUTE, msg.Header.Flags&unix.NLM_F_REPLACE != 0)
	}
	return nil
}

func (m *monitor) link(body []byte, gone bool) error {
	l, err := parseLink(body)
	if err != nil || body[0] != unix.AF_UNSPEC { // of family AF_BRIDGE are news about ports
		return err
	}
	if l.ours() {
		if gone || !l.up {
			m.notify(Notice{Kind: "pods"}) // their IPv4 routes go without a word
		}
		return nil
	}
	was, known := m.links[l.index]
	is := watch(l)
	if gone {
		delete(m.links, l.index)
		is.up = false
	} else {
		m.links[l.index] = is
	}
	if was.fabric && (gone || !is.fabric || was.name != is.name) {
		m.notify(Notice{Kind: "links", Key: topology.LinkKey(was.name), Gone: true})
	} else if !is.fabric && (was == is || !known && !is.up) {
		return nil // nothing that matters
	}
	if is.fabric && !gone {
		m.device(l)
	}
	if was.up && !is.up {
		m.notify(Notice{Kind: "routes"}) // IPv4 routes go without a word
	}
	if !is.fabric {
		m.notify(Notice{Kind: "underlay"})
	}
	return nil
}

// device reports a VXLAN device. Whether checksums are left to it, the message
// does not say.
func (m *monitor) device(l link) {
	checksum, err := m.h.txChecksum(l.name)
	if err != nil {
		m.notify(Notice{Kind: "links"}) // gone by now; or let the driver find out
		return
	}
	m.notify(Notice{Kind: "links", Key: topology.LinkKey(l.name), Value: l.object(checksum)})
}

func (m *monitor) address(body []byte, gone bool) error {
	a, err := parseAddress(body)
	if err != nil {
		return err
	}
	switch l, known := m.links[a.index]; {
	case !known || a.scope != unix.RT_SCOPE_UNIVERSE:
	case l.fabric:
		if k, ok := a.fabricKey(l.name); ok {
			m.tell("addresses", k, topology.Address{}, gone)
		}
		if gone { // with a device's last IPv4 address its IPv4 routes go, without a word
			m.notify(Notice{Kind: "routes"})
		}
	default:
		m.notify(Notice{Kind: "underlay"})
	}
	return nil
}

func (m *monitor) neighbour(body []byte, gone bool) error {
	n, err := parseNeighbour(body)
	if err != nil {
		return err
	}
	l := m.links[n.index]
	switch {
	case !l.fabric:
	case n.family == unix.AF_BRIDGE:
		k, v := n.forwarding(l.name)
		m.tell("fdb", k, v, gone)
	default:
		k, v, permanent := n.fabricNeighbour(l.name)
		m.tell("neighbours", k, v, gone || !permanent)
	}
	return nil
}

// route takes in news of our routes, of default routes, and of those that
// replace another one: that may have been ours.
func (m *monitor) route(body []byte, gone, replaces bool) error {
	const dstLength, protocol = 1, 5 // in struct rtmsg
	if len(body) < unix.SizeofRtMsg || body[dstLength] != 0 && body[protocol] != RouteProtocol && !replaces {
		return nil
	}
	r, err := parseRoute(body)
	if err != nil {
		return err
	}
	if k, v, ours := r.fabric(func(index int) string { return m.links[index].name }); ours {
		m.tell("routes", k, v, gone)
	} else if replaces {
		m.tell("routes", r.key(), nil, true)
	} else if gone && r.protocol == RouteProtocol && r.podRoute() {
		m.notify(Notice{Kind: "pods"})
	}
	if r.dst.Bits() == 0 {
		m.notify(Notice{Kind: "underlay"})
	}
	return nil
}

func (m *monitor) tell(kind string, key, value any, gone bool) {
	if gone {
		value = nil
	}
	m.notify(Notice{Kind: kind, Key: key, Value: value, Gone: gone})
}
