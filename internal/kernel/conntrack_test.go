// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weft.dev/weft/internal/core/attach"
)

// A UDP client that never pauses keeps its flow; it must follow the port all
// the same.
func TestUDPFlowsFollowThePort(t *testing.T) {
	for name, addrs := range map[string]struct{ node, first, second string }{
		"ipv4": {uplinkAddr4, "10.42.3.7", "10.42.3.8"},
		"ipv6": {uplinkAddr6, "fd00:42:3::7", "fd00:42:3::8"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ensure(testNode())
			out := w.newOutside()
			var client net.Conn
			out.Do(func() {
				c, err := net.Dial("udp", net.JoinHostPort(addrs.node, "5353"))
				if err != nil {
					t.Fatal(err)
				}
				client = c
			})
			defer client.Close()
			// Something on the host takes the packets without an answer, so that
			// there is a flow and no refusal.
			var sink *net.UDPConn
			w.host.Do(func() { sink, _ = net.ListenUDP("udp", &net.UDPAddr{Port: 5353}) })
			defer sink.Close()
			if who, err := answerOf(client, 300*time.Millisecond); err == nil {
				t.Fatalf("%q answers before there is a pod", who)
			}
			ports := []attach.Port{port(attach.UDP, "", 5353, 53)}
			if name == "ipv6" { // of several ports the kernel lists all flows
				ports = append(ports, port(attach.UDP, "", 5354, 54))
			}
			first := w.mapped(ports, addrs.first)
			serve(t, first.NS, attach.UDP, 53, "first")
			if who, err := answerOf(client, dialPatience); who != "first" {
				t.Fatalf("after ADD %q answers, %v; want first", who, err)
			}
			if err := w.h.Detach(first.plan.HostIfname); err != nil {
				t.Fatal(err)
			}
			_, _ = client.Write([]byte("in between"))
			drain(client)
			second := w.mapped(ports, addrs.second)
			serve(t, second.NS, attach.UDP, 53, "second")
			if who, err := answerOf(client, dialPatience); who != "second" {
				t.Fatalf("after DEL and ADD of another %q answers, %v; want second", who, err)
			}
		})
	}
}

// drain takes what is still to be read of answers to earlier questions.
func drain(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	for buf := make([]byte, 64); ; {
		if _, err := c.Read(buf); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// answerOf sends on one socket, so from one port, until somebody answers.
func answerOf(c net.Conn, within time.Duration) (string, error) {
	buf := make([]byte, 64)
	for deadline := time.Now().Add(within); ; {
		_, _ = c.Write([]byte("who"))
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := c.Read(buf)
		if err == nil {
			who, _, _ := strings.Cut(string(buf[:n]), " ")
			return who, nil
		}
		if time.Now().After(deadline) {
			return "", err
		}
	}
}

func TestForeignFlowsStay(t *testing.T) {
	w := newWorld(t)
	w.ensure(testNode())
	out := w.newOutside()
	client := w.attached("10.42.3.8")
	serve(t, out.NS, attach.UDP, 5353, "outside")
	if name, _, err := ask(client.NS, attach.UDP, net.JoinHostPort(outsideAddr4, "5353"), dialPatience); name != "outside" {
		t.Fatal(name, err)
	}
	before := w.flowsTo(outsideAddr4)
	w.mapped([]attach.Port{port(attach.UDP, "", 5353, 53)}, "10.42.3.7")
	if after := w.flowsTo(outsideAddr4); before != 1 || after != 1 {
		t.Errorf("flows to another machine's port: %d, then %d; want 1", before, after)
	}
}

func (w *world) flowsTo(dst string) (n int) {
	w.Helper()
	w.host.Do(func() {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
		if err != nil {
			w.Fatal(err)
		}
		for _, f := range flows {
			if f.Forward.DstIP.String() == dst {
				n++
			}
		}
	})
	return n
}
