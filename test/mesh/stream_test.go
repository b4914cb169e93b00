// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// datagramPause is the time between two datagrams of a flow.
const datagramPause = 2 * time.Millisecond

// flow is a stream of numbered datagrams from one pod to another. Unlike TCP it
// hides no loss.
type flow struct {
	name          string
	send, receive *net.UDPConn
	sent          atomic.Uint64
	mu            sync.Mutex
	got           map[uint64]bool
	end           chan struct{}
	wait          sync.WaitGroup
	failure       error // of sending, the first
}

// addressOf returns a pod's address of a family.
func (m *mesh) addressOf(pod string, ipv4 bool) netip.Addr {
	m.Helper()
	for _, a := range m.pods[pod].Addresses {
		if a.Addr().Is4() == ipv4 {
			return a.Addr()
		}
	}
	m.Fatalf("pod %s has no such address: %v", pod, m.pods[pod].Addresses)
	return netip.Addr{}
}

// flows starts a flow of each family in each direction between two pods.
func (m *mesh) flows(a, b string) (all []*flow) {
	m.Helper()
	for _, ipv4 := range []bool{true, false} {
		all = append(all, m.flow(a, b, ipv4), m.flow(b, a, ipv4))
	}
	return all
}

func (m *mesh) flow(from, to string, ipv4 bool) *flow {
	m.Helper()
	target := m.addressOf(to, ipv4)
	f := &flow{name: fmt.Sprintf("%s to %s %s", from, to, target), got: map[uint64]bool{}, end: make(chan struct{})}
	m.must(m.in(to, func() (err error) {
		f.receive, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(target, 0)))
		return err
	}))
	m.must(f.receive.SetReadBuffer(1 << 20))
	m.must(m.in(from, func() (err error) {
		f.send, err = net.DialUDP("udp", nil, f.receive.LocalAddr().(*net.UDPAddr))
		return err
	}))
	f.wait.Go(f.sendAll)
	f.wait.Go(f.receiveAll)
	m.Cleanup(func() { f.stop() })
	return f
}

func (f *flow) sendAll() {
	tick := time.NewTicker(datagramPause)
	defer tick.Stop()
	for {
		select {
		case <-f.end:
			return
		case <-tick.C:
		}
		number := f.sent.Add(1)
		if _, err := f.send.Write(binary.BigEndian.AppendUint64(nil, number)); err != nil && f.failure == nil {
			f.failure = fmt.Errorf("send datagram %d: %w", number, err)
		}
	}
}

func (f *flow) receiveAll() {
	buf := make([]byte, 64)
	for {
		n, err := f.receive.Read(buf)
		if err != nil {
			return // closed, or drained
		}
		if n == 8 {
			f.mu.Lock()
			f.got[binary.BigEndian.Uint64(buf)] = true
			f.mu.Unlock()
		}
	}
}

func (f *flow) received() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.got))
}

// stop ends the flow, once what is under way has arrived. It may be called
// again.
func (f *flow) stop() {
	select {
	case <-f.end:
		return
	default:
	}
	close(f.end)
	_ = f.receive.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // what is under way
	f.wait.Wait()
	_ = errors.Join(f.send.Close(), f.receive.Close())
}

// lossless stops flows and demands that everything arrived that was sent after
// the datagram of a number.
func (m *mesh) lossless(what string, after map[*flow]uint64, flows ...*flow) {
	m.Helper()
	total, all := uint64(0), 0
	for _, f := range flows {
		f.stop()
		sent := f.sent.Load()
		var lost []uint64
		for n := after[f] + 1; n <= sent; n++ {
			if !f.got[n] {
				lost = append(lost, n)
			}
		}
		if len(lost) > 0 || sent == after[f] || (f.failure != nil && after[f] == 0) {
			m.Errorf("%s: flow %s: lost %d of %d datagrams: numbers %v; %v", what, f.name, len(lost), sent-after[f], lost[:min(len(lost), 20)], f.failure)
		}
		total, all = total+sent-after[f], all+len(lost)
	}
	m.Logf("%s: %d datagrams in %d flows, %d lost", what, total, len(flows), all)
}

// now returns up to which datagram each flow is, for lossless.
func now(flows []*flow) map[*flow]uint64 {
	at := map[*flow]uint64{}
	for _, f := range flows {
		at[f] = f.sent.Load()
	}
	return at
}

// dialogue is a TCP connection between two pods, whose far end returns what it
// gets.
type dialogue struct {
	name string
	conn net.Conn
	far  net.Conn
	wait sync.WaitGroup
}

// dialogues opens one of each family.
func (m *mesh) dialogues(from, to string) []*dialogue {
	m.Helper()
	var all []*dialogue
	for _, ipv4 := range []bool{true, false} {
		d, err := m.dialogue(from, to, ipv4, 5*time.Second)
		m.must(err)
		all = append(all, d)
	}
	return all
}

func (m *mesh) dialogue(from, to string, ipv4 bool, within time.Duration) (*dialogue, error) {
	target := m.addressOf(to, ipv4)
	d := &dialogue{name: fmt.Sprintf("%s with %s %s", from, to, target)}
	var listener net.Listener
	err := m.in(to, func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(target, 0).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = listener.Close() }()
	err = m.in(from, func() (err error) {
		d.conn, err = net.DialTimeout("tcp", listener.Addr().String(), within)
		return err
	})
	if err != nil {
		return nil, err
	}
	if d.far, err = listener.Accept(); err != nil {
		return nil, err
	}
	d.wait.Go(func() { _, _ = io.Copy(d.far, d.far) })
	m.Cleanup(d.close)
	return d, nil
}

func (d *dialogue) close() {
	_ = errors.Join(d.conn.Close(), d.far.Close())
	d.wait.Wait()
}

// say sends n bytes and demands them back.
func (d *dialogue) say(n int, within time.Duration) error {
	_ = d.conn.SetDeadline(time.Now().Add(within))
	sent := make(chan error, 1)
	go func() {
		_, err := d.conn.Write(make([]byte, n))
		sent <- err
	}()
	_, err := io.CopyN(io.Discard, d.conn, int64(n))
	if err = errors.Join(err, <-sent); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%s: %d bytes did not come back within %v", d.name, n, within)
		}
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return nil
}

// talk demands that connections that were made before still work.
func (m *mesh) talk(what string, all []*dialogue) {
	m.Helper()
	for _, d := range all {
		if err := d.say(1<<20, bound); err != nil {
			m.Errorf("%s: %v", what, err)
		}
	}
}
