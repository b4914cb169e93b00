// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Rhythm of a Stream. What arrives lateAfter was lost once and repeated: TCP
// waits at least 200 ms with that (RFC 6298 as Linux has it).
const (
	streamInterval = 2 * time.Millisecond
	lateAfter      = 150 * time.Millisecond
	streamGrace    = 3 * time.Second // for what is under way when the stream ends
)

// messageLen is that of a message: its number and when it was sent, in
// nanoseconds since the stream began.
const messageLen = 16

// Flow is what became of the messages of a Stream.
type Flow struct {
	Sent       uint64
	Lost       uint64        // sent and never received
	Disordered uint64        // received twice or out of their order
	Late       uint64        // received more than 150 ms after they were sent
	Repeated   uint32        // segments that TCP had to send again
	LongestGap time.Duration // between two messages at the receiver
}

// Stream sends a numbered message every 2 ms over one end of a connection for
// a time, and receives them at the other. The receiver gets 3 s more for what
// is under way. If the connection breaks the Flow, up to there, comes with an
// error.
func Stream(ctx context.Context, send, receive *net.TCPConn, length time.Duration) (Flow, error) {
	start := time.Now()
	_ = receive.SetReadDeadline(start.Add(length + streamGrace))
	_ = send.SetWriteDeadline(start.Add(length + streamGrace))
	counted := make(chan tally, 1)
	go func() { counted <- receiveAll(receive, start) }()
	sent, broken := sendAll(ctx, send, start, length)
	_ = send.CloseWrite()
	t := <-counted
	if ctx.Err() == nil {
		t.gap(length) // a stream that broke is silent to the end
	}
	repeated, err := retransmitted(send)
	if err = errors.Join(broken, err); err != nil {
		err = fmt.Errorf("stream: %w", err)
	}
	return Flow{
		Sent: sent, Lost: sent - min(sent, t.received), Disordered: t.disordered, Late: t.late,
		Repeated: repeated, LongestGap: t.longest,
	}, err
}

// sendAll returns how many messages were sent.
func sendAll(ctx context.Context, conn io.Writer, start time.Time, length time.Duration) (uint64, error) {
	tick := time.NewTicker(streamInterval)
	defer tick.Stop()
	var message [messageLen]byte
	for number := uint64(0); ; number++ {
		now := time.Since(start)
		if now >= length || ctx.Err() != nil {
			return number, nil
		}
		binary.BigEndian.PutUint64(message[:], number)
		binary.BigEndian.PutUint64(message[8:], uint64(now))
		if _, err := conn.Write(message[:]); err != nil {
			return number, err
		}
		<-tick.C
	}
}

func receiveAll(conn io.Reader, start time.Time) tally {
	var t tally
	var message [messageLen]byte
	for {
		if _, err := io.ReadFull(conn, message[:]); err != nil {
			return t
		}
		sent := time.Duration(binary.BigEndian.Uint64(message[8:]))
		t.add(binary.BigEndian.Uint64(message[:]), sent, time.Since(start))
	}
}

// tally counts what arrives. Times are since the stream began.
type tally struct {
	next                       uint64 // number expected
	received, disordered, late uint64
	last, longest              time.Duration
}

func (t *tally) add(number uint64, sent, now time.Duration) {
	t.gap(now)
	t.last = now
	if number < t.next {
		t.disordered++
		return
	}
	t.next = number + 1
	t.received++
	if now-sent > lateAfter {
		t.late++
	}
}

// gap takes account of silence until now.
func (t *tally) gap(now time.Duration) { t.longest = max(t.longest, now-t.last) }

// retransmitted returns how many segments the sender repeated.
func retransmitted(conn *net.TCPConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	var failed error
	err = raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, failed); err != nil {
		return 0, os.NewSyscallError("getsockopt TCP_INFO", err)
	}
	return info.Total_retrans, nil
}
