// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A client that sends datagrams to a hostPort from one port all the time gets
// answers from the next pod that has the port: what the kernel remembers of the
// flow does not outlive the pod, and what it learns while there is no pod does not
// outlive that.
func testHostPortFlow(t *testing.T, s *suite) {
	ns := s.namespace(t)
	const port = 18120
	s.start(t, withPort(server(ns, "first", "node1"), port))
	flows := flowsTo(t, s, port)
	// by is nil if that pod answers all of them.
	by := func(want string) func(context.Context) error {
		return func(context.Context) (err error) {
			for _, f := range flows {
				got, e := f.ask()
				err = errors.Join(err, answers(want)(got, e))
			}
			return err
		}
	}
	await(t, 10*time.Second, "answers of the first pod", by("first"))
	s.remove(t, ns, "first")
	s.create(t, withPort(server(ns, "next", "node1"), port))
	await(t, starting, "the next pod to be Ready", func(ctx context.Context) error {
		p, err := s.Client().CoreV1().Pods(ns).Get(ctx, "next", metav1.GetOptions{})
		if err == nil && !isReady(p) {
			err = fmt.Errorf("it is not: %w", by("next")(ctx))
		}
		return err
	})
	await(t, 10*time.Second, "answers of the next pod", by("next"))
}

// flow is a client's socket.
type flow struct {
	name string
	conn net.Conn
}

// flowsTo are clients on both nodes, of a port of the first node at all its
// addresses.
func flowsTo(t *testing.T, s *suite, port uint16) (flows []flow) {
	t.Helper()
	for i, n := range s.Nodes[:2] {
		targets := slices.Clone(s.Nodes[0].Addresses)
		if i == 0 {
			targets = append(targets, netip.MustParseAddr("127.0.0.1"))
		}
		for _, address := range targets {
			f := flow{name: fmt.Sprintf("from %s to %s", n.Name, address)}
			err := n.Enter(func() (err error) {
				f.conn, err = net.Dial("udp", netip.AddrPortFrom(address, port).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.conn.Close() })
			flows = append(flows, f)
		}
	}
	return flows
}

// ask sends a datagram; the answer may be to one before.
func (f flow) ask() (string, error) {
	buf := make([]byte, 1500)
	_, err := f.conn.Write([]byte("hostname"))
	if err == nil {
		err = f.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	}
	n := 0
	if err == nil {
		n, err = f.conn.Read(buf)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.name, err)
	}
	return string(buf[:n]), nil
}
