// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"weft.dev/weft/internal/lab/probe"
)

// connectDeadline bounds the making of a stream's connection.
const connectDeadline = 3 * time.Second

// Stream is what became of a stream between two pods in one family.
type Stream struct {
	From       string  `json:"from"`
	To         string  `json:"to"`
	Family     string  `json:"family"`     // IPv4 or IPv6
	Messages   uint64  `json:"messages"`   // sent
	Lost       uint64  `json:"lost"`       // never received, or twice, or out of order
	Late       uint64  `json:"late"`       // received more than 150 ms after they were sent
	Repeated   uint32  `json:"repeated"`   // segments that TCP had to send again
	GapMillis  float64 `json:"gapMillis"`  // the longest time in which nothing arrived
	Connection string  `json:"connection"` // OK, or why there is none any more
}

// Header implements view.Row.
func (s Stream) Header() []string {
	return []string{"FROM", "TO", "FAMILY", "MESSAGES", "LOST", "LATE", "REPEATED", "LONGEST GAP", "CONNECTION"}
}

// Cells implements view.Row.
func (s Stream) Cells() []string {
	count := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return []string{
		s.From, s.To, s.Family, count(s.Messages), count(s.Lost), count(s.Late), count(uint64(s.Repeated)),
		fmt.Sprintf("%.1f ms", s.GapMillis), oneLine(s.Connection),
	}
}

// OK reports whether everything arrived.
func (s Stream) OK() bool { return s.Lost == 0 && s.Connection == OK }

// Stream sends messages from one pod to another over TCP for a time, in each
// family that both have, and says what became of them. It does not hold the
// lab: other commands may change it meanwhile.
func (h Host) Stream(ctx context.Context, name, from, to string, length time.Duration) ([]Stream, error) {
	talks, err := h.talks(name, from, to)
	if err != nil {
		return nil, err
	}
	defer talks[0].from.close()
	defer talks[0].to.close()
	rows := make([]Stream, len(talks))
	var all sync.WaitGroup
	for i, t := range talks {
		all.Go(func() { rows[i] = t.stream(ctx, length) })
	}
	all.Wait()
	return rows, nil
}

// talks opens two pods; there is at least one talk between them.
func (h Host) talks(name, from, to string) ([]talk, error) {
	l, err := h.open(name, reading)
	if err != nil {
		return nil, err
	}
	defer l.close()
	a, err := l.speaker(from)
	if err != nil {
		return nil, err
	}
	b, err := l.speaker(to)
	if err != nil {
		a.close()
		return nil, err
	}
	talks := talksBetween(a, b, a.addrs)
	if len(talks) == 0 {
		a.close()
		b.close()
		return nil, fmt.Errorf("pods %s and %s have no family of addresses in common", from, to)
	}
	return talks, nil
}

// speaker opens the namespace of one pod.
func (l *lab) speaker(pod string) (speaker, error) {
	if err := ValidatePodName(pod); err != nil {
		return speaker{}, err
	}
	var p Pod
	if err := readJSON(l.l.pod(pod), &p); errors.Is(err, os.ErrNotExist) {
		return speaker{}, &NoPodError{Name: pod}
	} else if err != nil {
		return speaker{}, err
	}
	return l.podSpeaker(p)
}

func (t talk) stream(ctx context.Context, length time.Duration) Stream {
	s := Stream{From: t.from.name, To: t.to.name, Family: familyName(t.target), Connection: OK}
	send, receive, err := t.connect(ctx)
	if err != nil {
		s.Connection = err.Error()
		return s
	}
	defer func() { _ = errors.Join(send.Close(), receive.Close()) }()
	flow, err := probe.Stream(ctx, send, receive, length)
	if err != nil {
		s.Connection = err.Error()
	}
	s.Messages, s.Lost, s.Late, s.Repeated = flow.Sent, flow.Lost+flow.Disordered, flow.Late, flow.Repeated
	s.GapMillis = float64(flow.LongestGap.Microseconds()) / 1000
	return s
}

// connect returns both ends of a connection, in their own namespaces.
func (t talk) connect(ctx context.Context) (send, receive *net.TCPConn, err error) {
	var listener *net.TCPListener
	err = t.to.ns.Do(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.target, 0)))
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: listen: %w", t.to.name, err)
	}
	defer func() { _ = listener.Close() }()
	_ = listener.SetDeadline(time.Now().Add(connectDeadline))
	err = t.from.ns.Do(func() error {
		conn, err := (&net.Dialer{Timeout: connectDeadline}).DialContext(ctx, "tcp", listener.Addr().String())
		if err == nil {
			send = conn.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: connect: %w", t.from.name, err)
	}
	receive, err = listener.AcceptTCP()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: accept: %w", t.to.name, err), send.Close())
	}
	return send, receive, nil
}
