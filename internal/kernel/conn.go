// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// message is one netlink request, with what an error about it should say.
type message struct {
	req    *nl.NetlinkRequest
	op     string
	object string
	reply  func(body []byte) error // takes each answer; nil: no answer is expected
	err    error                   // the outcome, set by exec
}

// conn is a netlink socket on which requests travel in batches.
//
// The kernel works through a datagram before sendto returns and has queued all
// answers by then, so reading never waits, and several requests in one
// datagram are as safe against our death as one: either none was done or all
// were tried.
type conn struct {
	fd  int
	buf []byte
}

// receiveBuffer is in bytes. The kernel makes datagrams of a dump as large as
// the reader's buffer, up to 32 KiB.
const receiveBuffer = 32 << 10

// Limits of one datagram. Answers beyond the socket's receive buffer would be
// lost, and the largest, a link, takes 2-4 KiB of it.
const (
	maxBatchMessages = 40
	maxBatchBytes    = 32 << 10
)

// dial opens a socket in the namespace of the calling thread.
func dial(protocol int) (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind netlink socket: %w", err)
	}
	// Error texts (4.12) and filtered dumps (4.20) are welcome but not needed.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	return &conn{fd: fd, buf: make([]byte, receiveBuffer)}, nil
}

func (c *conn) close() { _ = unix.Close(c.fd) }

// exec sends the messages in order and returns the first error; each message
// then knows its own. The kernel does not stop at a request that fails, so a
// message must not rely on an earlier one of the same batch for its safety.
func (c *conn) exec(msgs ...*message) error {
	for rest := msgs; len(rest) > 0; {
		n, err := c.send(rest)
		if err != nil {
			return err
		}
		if err := c.collect(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	for _, m := range msgs {
		if m.err != nil {
			return m.err
		}
	}
	return nil
}

// send puts as many messages into one datagram as fit and returns how many.
// Only the last one asks for an acknowledgement: those that fail are reported
// unasked, and answers come in the order of the requests.
func (c *conn) send(msgs []*message) (int, error) {
	var datagram []byte
	n := 0
	for n < len(msgs) && n < maxBatchMessages {
		msgs[n].err = nil
		b := msgs[n].req.Serialize()
		if n > 0 && len(datagram)+len(b) > maxBatchBytes {
			break
		}
		datagram = append(datagram, b...)
		datagram = append(datagram, make([]byte, -len(b)&(unix.NLMSG_ALIGNTO-1))...)
		n++
	}
	last := msgs[n-1]
	last.req.Flags |= unix.NLM_F_ACK
	tail := last.req.Serialize()
	copy(datagram[len(datagram)-(len(tail)+3)&^3:], tail)
	if err := unix.Sendto(c.fd, datagram, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("%s %s: send netlink message: %w", msgs[0].op, msgs[0].object, err)
	}
	return n, nil
}

// collect reads answers until the acknowledgement of the last message.
func (c *conn) collect(msgs []*message) error {
	last := msgs[len(msgs)-1]
	bySeq := make(map[uint32]*message, len(msgs))
	for _, m := range msgs {
		bySeq[m.req.Seq] = m
	}
	for {
		answers, err := c.receive()
		if err != nil {
			return fmt.Errorf("%s %s: %w", last.op, last.object, err)
		}
		for _, a := range answers {
			m := bySeq[a.Header.Seq]
			if m == nil {
				continue // of an earlier request that was given up
			}
			if a.Header.Type != unix.NLMSG_ERROR {
				m.take(a.Data)
				continue
			}
			if err := m.outcome(a); err != nil {
				m.err = err
			}
			if m == last {
				return nil
			}
		}
	}
}

func (m *message) take(body []byte) {
	if m.reply == nil || m.err != nil {
		return
	}
	if err := m.reply(body); err != nil {
		m.err = &OpError{Op: m.op, Object: m.object, Err: err}
	}
}

// dump sends one request with NLM_F_DUMP. It fails with errDumpInterrupted if
// the table changed meanwhile, in which case what reply saw may be incomplete.
func (c *conn) dump(m *message) error {
	m.req.Flags |= unix.NLM_F_DUMP
	if err := unix.Sendto(c.fd, m.req.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("%s %s: send netlink message: %w", m.op, m.object, err)
	}
	interrupted := false
	for {
		answers, err := c.receive()
		if err != nil {
			return fmt.Errorf("%s %s: %w", m.op, m.object, err)
		}
		for _, a := range answers {
			if a.Header.Seq != m.req.Seq {
				continue
			}
			interrupted = interrupted || a.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch a.Header.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if err := m.outcome(a); err != nil {
					return err
				}
				if interrupted && m.err == nil {
					return errDumpInterrupted
				}
				return m.err
			default:
				m.take(a.Data)
			}
		}
	}
}

var errDumpInterrupted = errors.New("the table changed while it was read")

// maxDumpAttempts bounds the repetition of an interrupted dump. On a node that
// makes and deletes hundreds of links per second one in three is interrupted.
const maxDumpAttempts = 30

// dumpStable repeats a dump until it was not interrupted. fresh returns the
// request anew and forgets what was collected.
func (c *conn) dumpStable(fresh func() *message) error {
	var m *message
	for range maxDumpAttempts {
		m = fresh()
		if err := c.dump(m); !errors.Is(err, errDumpInterrupted) {
			return err
		}
	}
	return fmt.Errorf("%s %s: %w, %d times in a row", m.op, m.object, errDumpInterrupted, maxDumpAttempts)
}

func (c *conn) receive() ([]syscall.NetlinkMessage, error) {
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("receive netlink message: %w", err)
		case n > len(c.buf):
			return nil, fmt.Errorf("receive netlink message: %d bytes, expected at most %d", n, len(c.buf))
		}
		answers, err := syscall.ParseNetlinkMessage(c.buf[:n])
		if err != nil {
			return nil, fmt.Errorf("parse netlink message: %w", err)
		}
		return answers, nil
	}
}

// outcome decodes NLMSG_ERROR and NLMSG_DONE: a negative errno or zero, then
// (of an error) the header of the request and attributes, one of them a text.
func (m *message) outcome(a syscall.NetlinkMessage) error {
	if len(a.Data) < 4 {
		return nil // NLMSG_DONE may be empty
	}
	errno := -int32(nl.NativeEndian().Uint32(a.Data))
	if errno == 0 {
		return nil
	}
	e := &OpError{Op: m.op, Object: m.object, Err: syscall.Errno(errno)}
	if a.Header.Type == unix.NLMSG_ERROR && a.Header.Flags&unix.NLM_F_ACK_TLVS != 0 {
		e.Message = ackText(a)
	}
	return e
}

// ackText returns the text of an extended acknowledgement, or "".
func ackText(a syscall.NetlinkMessage) string {
	skip := 4 + unix.SizeofNlMsghdr
	if a.Header.Flags&unix.NLM_F_CAPPED == 0 && len(a.Data) >= 8 {
		skip = 4 + int(nl.NativeEndian().Uint32(a.Data[4:])+3)&^3 // the request was echoed in full
	}
	words := ""
	_ = parseAttrs(a.Data, skip, func(kind int, v []byte) {
		if kind == nl.NLMSGERR_ATTR_MSG {
			words = unix.ByteSliceToString(v)
		}
	})
	return words
}
