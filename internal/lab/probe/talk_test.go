// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// serve runs a server until the test ends.
func serve(t *testing.T, name string, port uint16) *Server {
	t.Helper()
	loUp(t)
	s, err := Listen(name, port)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve until cancelled: %v", err)
		}
		goleak.VerifyNone(t)
	})
	return s
}

// TestAsk asks at each of the host's addresses. A connected UDP socket takes
// an answer from that very address only, so this also proves that the answer
// leaves from where the question went.
func TestAsk(t *testing.T) {
	s := serve(t, "a", 0)
	for _, network := range []string{"tcp", "udp"} {
		for _, text := range []string{"127.0.0.1", "::1", "203.0.113.1", "2001:db8::1"} {
			addr := netip.MustParseAddr(text)
			got, err := Ask(t.Context(), network, netip.AddrPortFrom(addr, s.Port()))
			if err != nil {
				t.Errorf("%s %s: %v", network, addr, err)
				continue
			}
			if got.Server != "a" || got.Seen.Addr() != addr || got.Seen.Port() == 0 {
				t.Errorf("%s %s: answer %+v, want to be seen as the address itself", network, addr, got)
			}
		}
	}
}

func TestAskNobody(t *testing.T) {
	loUp(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	for _, network := range []string{"tcp", "udp"} {
		_, err := Ask(t.Context(), network, free)
		if err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), free.String()) {
			t.Errorf("%s: error %v, want a refusal that names %s", network, err, free)
		}
	}
	if _, err := Ask(t.Context(), "sctp", free); err == nil || !strings.Contains(err.Error(), "tcp or udp") {
		t.Errorf("sctp: error %v, want the two networks named", err)
	}
}

func TestListenOnTakenPort(t *testing.T) {
	s := serve(t, "first", 0)
	if _, err := Listen("second", s.Port()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("error %v, want: address already in use", err)
	}
}

func TestAnswerRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Answer{
			Server: rapid.StringMatching(`[a-z0-9-]{1,63}`).Draw(t, "server"),
			Seen: netip.AddrPortFrom(
				netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr"))).Unmap(),
				rapid.Uint16().Draw(t, "port")),
		}
		got, err := ParseAnswer(want.String())
		if err != nil || got != want {
			t.Fatalf("%q: parsed %+v, %v", want, got, err)
		}
	})
}

func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{"a sees 10.42.0.2:4711\n", "b sees [fd00:42::2]:1", "", " sees ", "a sees 10.42.0.2", "a sees sees 1.2.3.4:5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAnswer(s)
		if err != nil {
			return
		}
		again, err := ParseAnswer(a.String())
		if err != nil || again != a {
			t.Fatalf("%q: parsed %+v, printed and parsed %+v, %v", s, a, again, err)
		}
	})
}
