// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/kernel/nstest"
)

// limit gives the plan of a pod a rate in both directions, in bits per second.
func limit(p *pod, rate uint64) {
	b := attach.Limit{Rate: rate}.Bucket()
	p.plan.ToPod, p.plan.ToHost, p.plan.Shaper = b, b, attach.Shaper(p.plan.HostIfname)
}

// TestRateOfTCP measures what a limit lets through. Rates are those of layer 2;
// headers take some 4 % of it.
func TestRateOfTCP(t *testing.T) {
	for _, rate := range []uint64{10_000_000, 100_000_000} {
		for name, addr := range map[string]string{"ipv4": "10.42.3.7", "ipv6": "fd00:42:3::7"} {
			t.Run(fmt.Sprintf("%dMbit/%s", rate/1_000_000, name), func(t *testing.T) {
				w := newWorld(t)
				p := w.newPod(addr)
				limit(p, rate)
				w.attach(p)
				w.noDifference(p)
				dst := netip.MustParseAddr(addr)
				node := nodeAddr4
				if dst.Is6() {
					node = nodeAddr6
				}
				measure(t, "to the pod", rate, w.host, p.NS, dst)
				measure(t, "from the pod", rate, p.NS, w.host, node)
			})
		}
	}
}

// measure expects the rate within 15 %. Less may be the machine's, which has
// other things to do: that is tried again. More never is.
func measure(t *testing.T, direction string, rate uint64, from, to *nstest.NS, dst netip.Addr) {
	t.Helper()
	const attempts, tolerance = 3, 0.15
	var got float64
	for range attempts {
		got = measureOnce(t, from, to, dst) / float64(rate)
		t.Logf("%s: %.1f %% of the rate", direction, got*100)
		if got >= 1-tolerance {
			break
		}
	}
	if got < 1-tolerance || got > 1+tolerance {
		t.Errorf("%s: %.0f %% of %d bits/s, want 85 to 115 %%", direction, got*100, rate)
	}
}

// measureOnce sends for two seconds and returns bits per second.
func measureOnce(t *testing.T, from, to *nstest.NS, dst netip.Addr) float64 {
	t.Helper()
	const lasting = 2 * time.Second
	var l *net.TCPListener
	to.Do(func() {
		var err error
		if l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(dst, 0))); err != nil {
			t.Fatal(err)
		}
	})
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		from.Do(func() {
			c, err := net.DialTimeout("tcp", l.Addr().String(), patience)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(lasting + patience))
			buf := make([]byte, 128<<10)
			for err == nil { // until the receiver closes
				_, err = c.Write(buf)
			}
		})
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_ = c.SetDeadline(begin.Add(lasting))
	n, _ := io.Copy(io.Discard, c)
	seconds := time.Since(begin).Seconds()
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	<-done
	return float64(n) * 8 / seconds
}

// One direction alone makes only what it needs.
func TestOneLimit(t *testing.T) {
	w := newWorld(t)
	p := w.newPod("10.42.3.7")
	p.plan.ToPod = attach.Limit{Rate: 1_000_000}.Bucket()
	w.attach(p)
	w.noDifference(p)
	if w.linkExists(attach.Shaper(p.plan.HostIfname)) {
		t.Error("there is a shaper for nothing")
	}
	q := w.newPod("10.42.3.8")
	limit(q, 40_000_000_000) // more than 32 bits of bytes per second
	q.plan.ToPod = attach.Bucket{}
	w.attach(q)
	w.noDifference(q)
	if _, err := exchange(t, q.NS, w.host, nodeAddr4); err != nil {
		t.Error(err)
	}
	for _, p := range []*pod{p, q} {
		if err := w.h.Detach(p.plan.HostIfname); err != nil {
			t.Fatal(err)
		}
	}
	if w.linkExists(q.plan.Shaper) {
		t.Error("the shaper is left")
	}
}

func TestMendLimits(t *testing.T) {
	tc := func(args ...string) func(w *world, p *pod) {
		return func(w *world, p *pod) {
			w.host.Do(func() {
				for i, a := range args {
					switch a {
					case "HOST":
						args[i] = p.plan.HostIfname
					case "SHAPER":
						args[i] = p.plan.Shaper
					}
				}
				if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
					w.Fatalf("%v: %v: %s", args, err, out)
				}
			})
		}
	}
	for name, rob := range map[string]func(w *world, p *pod){
		"queue to the pod": tc("tc", "qdisc", "del", "dev", "HOST", "root"),
		"queue from it":    tc("tc", "qdisc", "del", "dev", "SHAPER", "root"),
		"other rate":       tc("tc", "qdisc", "replace", "dev", "HOST", "root", "tbf", "rate", "1mbit", "burst", "80k", "latency", "25ms"),
		"clsact":           tc("tc", "qdisc", "del", "dev", "HOST", "clsact"),
		"filter":           tc("tc", "filter", "del", "dev", "HOST", "ingress"),
		"shaper":           tc("ip", "link", "del", "SHAPER"),
		"shaper down":      tc("ip", "link", "set", "SHAPER", "down"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.newPod("10.42.3.7")
			limit(p, 50_000_000)
			w.attach(p)
			if n, err := w.h.Mend(p.plan); err != nil || n != 0 {
				t.Errorf("of a whole one: %d mended, %v", n, err)
			}
			rob(w, p)
			if diffs, err := w.h.Compare(p.ns, p.plan); err != nil || len(diffs) == 0 {
				t.Errorf("CHECK finds %v, %v", diffs, err)
			}
			if n, err := w.h.Mend(p.plan); err != nil || n == 0 {
				t.Errorf("%d mended, %v", n, err)
			}
			w.noDifference(p)
			if n, err := w.h.Mend(p.plan); err != nil || n != 0 {
				t.Errorf("a second time: %d mended, %v", n, err)
			}
			if _, err := exchange(t, p.NS, w.host, nodeAddr4); err != nil {
				t.Error(err)
			}
		})
	}
}
