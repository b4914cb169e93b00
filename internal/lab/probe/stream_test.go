// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// connection returns the two ends of one.
func connection(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	loUp(t)
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr)); err != nil {
		t.Fatal(err)
	}
	if b, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestStream(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := connection(t)
	f, err := Stream(t.Context(), a, b, 100*time.Millisecond)
	if err != nil || f.Sent < 5 || f.Lost != 0 || f.Disordered != 0 || f.LongestGap <= 0 {
		t.Errorf("a whole stream: %+v, %v", f, err)
	}
}

// TestStreamBroken: what was not received is lost, and the silence counts.
func TestStreamBroken(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := connection(t)
	if err := b.CloseRead(); err != nil {
		t.Fatal(err)
	}
	f, err := Stream(t.Context(), a, b, 50*time.Millisecond)
	if err != nil || f.Sent < 5 || f.Lost < f.Sent-1 || f.LongestGap < 40*time.Millisecond {
		t.Errorf("a stream that nobody reads: %+v, %v", f, err)
	}
}

// TestStreamReset: a connection that breaks is an error, and the rest of the
// time was silence.
func TestStreamReset(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := connection(t)
	_ = b.SetLinger(0)
	b.Close()
	f, err := Stream(t.Context(), a, b, 300*time.Millisecond)
	if err == nil || f.Lost != f.Sent || f.LongestGap < 290*time.Millisecond {
		t.Errorf("a stream that was reset: %+v, %v", f, err)
	}
}

func TestStreamCancelled(t *testing.T) {
	a, b := connection(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := Stream(ctx, a, b, time.Hour); err != nil || f.Sent != 0 || f.Lost != 0 {
		t.Errorf("a cancelled stream: %+v, %v", f, err)
	}
}

// TestTally: whatever arrives in whatever order, what is counted is what a
// second look at the whole list says.
func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfN(rapid.Uint64Range(0, 20), 1, 30).Draw(t, "numbers")
		var got tally
		var late, inOrder uint64
		var now, longest time.Duration
		highest := int64(-1)
		for _, n := range numbers {
			pause := time.Duration(rapid.IntRange(0, 400).Draw(t, "pause")) * time.Millisecond
			delay := time.Duration(rapid.IntRange(0, 300).Draw(t, "delay")) * time.Millisecond
			now += pause
			longest = max(longest, pause)
			got.add(n, now-delay, now)
			if int64(n) > highest {
				highest = int64(n)
				inOrder++
				if delay > lateAfter {
					late++
				}
			}
		}
		want := tally{
			next: slices.Max(numbers) + 1, received: inOrder, disordered: uint64(len(numbers)) - inOrder,
			late: late, last: now, longest: longest,
		}
		if got != want {
			t.Fatalf("%v: %+v, want %+v", numbers, got, want)
		}
	})
}

// TestReceiveTorn: a message that is cut off is no message.
func TestReceiveTorn(t *testing.T) {
	a, b := net.Pipe()
	go func() {
		var message [messageLen]byte
		for n := range uint64(3) {
			binary.BigEndian.PutUint64(message[:], n)
			_, _ = a.Write(message[:])
		}
		_, _ = a.Write(message[:messageLen/2])
		a.Close()
	}()
	if got := receiveAll(b, time.Now()); got.received != 3 || got.disordered != 0 {
		t.Errorf("three messages and a half: %+v", got)
	}
}
