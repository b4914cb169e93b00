// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestChecksum holds the example of RFC 1071, section 3, and the odd length.
func TestChecksum(t *testing.T) {
	for _, tc := range []struct {
		in   []byte
		want uint16
	}{
		{nil, 0xffff},
		{[]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, ^uint16(0xddf2)},
		{[]byte{0xab}, ^uint16(0xab00)},
	} {
		if got := checksum(tc.in); got != tc.want {
			t.Errorf("checksum(%x) = %#04x, want %#04x", tc.in, got, tc.want)
		}
	}
}

// reply turns a request into what a raw socket receives from the peer.
func reply(e echo, ipv4 bool, options int) []byte {
	if !ipv4 {
		msg := e.request(netip.IPv6Loopback())
		msg[0] = echoReply.v6
		return msg
	}
	msg := e.request(netip.MustParseAddr("127.0.0.1"))
	msg[0] = echoReply.v4
	header := make([]byte, 20+4*options)
	header[0] = 0x40 | byte(len(header)/4)
	return append(header, msg...)
}

func genEcho(t *rapid.T) echo {
	return echo{
		ID:      rapid.Uint16().Draw(t, "id"),
		Seq:     rapid.Uint16().Draw(t, "seq"),
		Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
	}
}

// TestEchoSurvivesTheWire: what is sent is what is parsed, with or without IP
// options, and a request is never taken for a reply.
func TestEchoSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genEcho(t)
		ipv4 := rapid.Bool().Draw(t, "ipv4")
		packet := reply(want, ipv4, rapid.IntRange(0, 10).Draw(t, "options"))
		got, ok := parseEcho(packet, ipv4, echoReply)
		if !ok || got.ID != want.ID || got.Seq != want.Seq || !bytes.Equal(got.Payload, want.Payload) {
			t.Fatalf("parsed %+v, %v; want %+v", got, ok, want)
		}
		if _, ok := parseEcho(want.request(netip.IPv6Loopback()), false, echoReply); ok {
			t.Fatal("a request was taken for a reply")
		}
	})
}

// TestRequestChecksum: a receiver that sums a whole ICMP message gets zero.
func TestRequestChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if got := checksum(genEcho(t).request(netip.MustParseAddr("192.0.2.1"))); got != 0 {
			t.Fatalf("sum over the message is %#04x, want 0", got)
		}
	})
}

func FuzzParseEcho(f *testing.F) {
	f.Add(reply(echo{ID: 1, Seq: 2, Payload: []byte("x")}, true, 0), true)
	f.Add(reply(echo{ID: 1, Seq: 2, Payload: []byte("x")}, false, 0), false)
	f.Add(reply(echo{}, true, 10), true)
	f.Add([]byte{0x4f}, true)
	f.Add(bytes.Repeat([]byte{0x4f}, 24), true) // a header longer than the packet
	f.Add([]byte{echoReply.v6, 0}, false)
	f.Fuzz(func(t *testing.T, packet []byte, ipv4 bool) {
		e, ok := parseEcho(packet, ipv4, echoReply)
		if !ok {
			return
		}
		again, ok := parseEcho(reply(e, ipv4, 0), ipv4, echoReply)
		if !ok || again.ID != e.ID || again.Seq != e.Seq || !bytes.Equal(again.Payload, e.Payload) {
			t.Fatalf("%x: parsed %+v, rebuilt and parsed %+v", packet, e, again)
		}
	})
}

func TestPing(t *testing.T) {
	loUp(t)
	for _, addr := range []string{"127.0.0.1", "::1", "203.0.113.1", "2001:db8::1"} {
		rtt, err := Ping(t.Context(), netip.MustParseAddr(addr), "")
		if err != nil || rtt <= 0 || rtt > interval {
			t.Errorf("ping %s: %v, %v", addr, rtt, err)
		}
	}
}

// TestWitness: it tells the source of the one request that it is asked for,
// and that there was none.
func TestWitness(t *testing.T) {
	loUp(t)
	for _, addr := range []string{"203.0.113.1", "2001:db8::1"} {
		dst := netip.MustParseAddr(addr)
		w, err := NewWitness(dst)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for _, mark := range []string{"first", "second"} {
			if _, err := Ping(t.Context(), dst, mark); err != nil {
				t.Fatal(err)
			}
		}
		if source, err := w.Source("second"); err != nil || source != dst {
			t.Errorf("%s: source %s, %v; want the address itself", addr, source, err)
		}
		if source, err := w.Source("third"); err == nil {
			t.Errorf("%s: source %s of a request that was never sent", addr, source)
		}
	}
}

// TestPingUnreachable: no route is an error at once, and the address is named.
func TestPingUnreachable(t *testing.T) {
	loUp(t)
	for _, addr := range []string{"198.51.100.1", "2001:db8:ffff::1"} {
		_, err := Ping(t.Context(), netip.MustParseAddr(addr), "")
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(addr)) {
			t.Errorf("ping %s: error %v, want one that names the address", addr, err)
		}
	}
}

func TestPingCancelled(t *testing.T) {
	loUp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ping(ctx, netip.MustParseAddr("127.0.0.1"), ""); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want the context's", err)
	}
}
