// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/test/cluster"
)

// A pod with the annotations kubernetes.io/ingress-bandwidth and
// egress-bandwidth receives and sends as fast as they say, within 15 %, over
// either family.
func testBandwidth(t *testing.T, s *suite) {
	ns := s.namespace(t)
	const ingress, egress = 10e6, 5e6 // bits a second
	pod := s.start(t, sleeper(ns, "limited", "node1",
		"kubernetes.io/ingress-bandwidth", "10M", "kubernetes.io/egress-bandwidth", "5M"))[0]
	for _, address := range s.Nodes[1].Addresses {
		for _, dir := range []direction{
			{"ingress", ingress, "rm -f /tmp/open; mkfifo /tmp/open; nc %[1]s <>/tmp/open >/dev/null # %[2]d bytes", sendAll},
			{"egress", egress, "head -c %[2]d /dev/zero | nc %[1]s >/dev/null", receiveAll},
		} {
			got, err := s.measure(t, pod, address, dir)
			switch {
			case err != nil:
				t.Errorf("%s from %s: %v", dir.name, address, err)
			case got < 0.85*dir.rate || got > 1.15*dir.rate:
				t.Errorf("%s with %s: measured %.2f Mbit/s, want %.0f within 15 %%", dir.name, address, got/1e6, dir.rate/1e6)
			default:
				t.Logf("%s with %s: %.2f Mbit/s of %.0f", dir.name, address, got/1e6, dir.rate/1e6)
			}
		}
	}
}

// direction is one in which a pod's traffic goes.
type direction struct {
	name   string
	rate   float64 // bits a second
	script string  // what the pod does: host and port of the other end, bytes
	other  func(conn net.Conn, size int64) (time.Duration, error)
}

// measure has the pod and the second node, at that address of it, send as much as
// takes 3 s at the direction's rate, and returns the rate.
func (s *suite) measure(t *testing.T, pod *corev1.Pod, at netip.Addr, dir direction) (float64, error) {
	t.Helper()
	size := int64(dir.rate / 8 * 3)
	listener := listenOn(t, s.Nodes[1], netip.AddrPortFrom(at, 0))
	type result struct {
		took time.Duration
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			r.took, err = dir.other(conn, size)
		}
		r.err = err
		done <- r
	}()
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return 0, err
	}
	s.sh(t, pod, fmt.Sprintf(dir.script, host+" "+port, size))
	select {
	case r := <-done:
		return float64(size) * 8 / r.took.Seconds(), r.err
	case <-time.After(30 * time.Second):
		return 0, errors.New("nothing for 30 s")
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
