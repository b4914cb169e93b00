// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"weft.dev/weft/test/cluster"
)

// A pod with the annotations kubernetes.io/ingress-bandwidth and
// egress-bandwidth receives and sends as fast as they say, within 15 %.
func testBandwidth(t *testing.T, s *suite) {
	ns := s.namespace(t)
	const ingress, egress = 10e6, 5e6 // bits a second
	pod := s.start(t, sleeper(ns, "limited", "node1",
		"kubernetes.io/ingress-bandwidth", "10M", "kubernetes.io/egress-bandwidth", "5M"))[0]
	for _, dir := range []struct {
		name   string
		rate   float64
		script string // %s: host and port of the other end, %d: bytes
		other  func(conn net.Conn, size int64) (time.Duration, error)
	}{
		{"ingress", ingress, "mkfifo /tmp/open; nc %[1]s <>/tmp/open >/dev/null", sendAll},
		{"egress", egress, "head -c %[2]d /dev/zero | nc %[1]s >/dev/null", receiveAll},
	} {
		const seconds = 4
		size := int64(dir.rate / 8 * seconds)
		listener := listenOn(t, s.Nodes[1], netip.AddrPortFrom(s.Nodes[1].Addresses[0], 0))
		took := make(chan time.Duration, 1)
		failed := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				failed <- err
				return
			}
			defer conn.Close()
			d, err := dir.other(conn, size)
			if err != nil {
				failed <- err
				return
			}
			took <- d
		}()
		host, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s.sh(t, pod, fmt.Sprintf(dir.script, host+" "+port, size)+fmt.Sprintf(" # %d", size))
		select {
		case d := <-took:
			got := float64(size) * 8 / d.Seconds()
			t.Logf("%s: %.2f Mbit/s of %.0f", dir.name, got/1e6, dir.rate/1e6)
			if got < 0.85*dir.rate || got > 1.15*dir.rate {
				t.Errorf("%s: measured %.2f Mbit/s, want %.0f within 15 %%", dir.name, got/1e6, dir.rate/1e6)
			}
		case err := <-failed:
			t.Error(err)
		case <-time.After(30 * time.Second):
			t.Errorf("%s: nothing for 30 s", dir.name)
		}
	}
}

// listenOn listens in a node's network.
func listenOn(t *testing.T, n *cluster.Node, at netip.AddrPort) (l net.Listener) {
	t.Helper()
	err := n.Enter(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// sendAll sends and waits until the other end has everything.
func sendAll(conn net.Conn, size int64) (time.Duration, error) {
	start := time.Now()
	if _, err := io.CopyN(conn, zeros{}, size); err != nil {
		return 0, err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	_, err := io.Copy(io.Discard, conn)
	return time.Since(start), err
}

// receiveAll receives until the other end has sent everything.
func receiveAll(conn net.Conn, size int64) (time.Duration, error) {
	start := time.Now()
	_, err := io.CopyN(io.Discard, conn, size)
	return time.Since(start), err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
