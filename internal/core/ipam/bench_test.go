// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"testing"
)

// facts are n addresses of the range in use, with owners as a CNI network has.
func facts(b testing.TB, r Range, n int) (addrs []netip.Addr, owners []string) {
	a := r.First.Next()
	for i := range n {
		addrs = append(addrs, a)
		owners = append(owners, fmt.Sprintf("kube-net/%064x/eth0", i))
		a = a.Next()
	}
	if !r.Contains(a) {
		b.Fatalf("%s is too small for %d", r, n)
	}
	return addrs, owners
}

func replay(b testing.TB, addrs []netip.Addr, owners []string, grow int) *Usage {
	u := NewUsage()
	u.Grow(grow)
	for i, a := range addrs {
		if err := u.Take(a, owners[i]); err != nil {
			b.Fatal(err)
		}
	}
	return u
}

// A thin plugin: one process, one allocation.
func BenchmarkReplayAndAllocate(b *testing.B) {
	for _, bb := range []struct {
		subnet string
		grow   int
	}{{"10.0.0.0/16", 0}, {"10.0.0.0/16", 4000}, {"fd00::/64", 4000}} {
		b.Run(fmt.Sprintf("%s/grow=%d", bb.subnet, bb.grow), func(b *testing.B) {
			p := mustPool(b, Set{subnetRange(bb.subnet)})
			addrs, owners := facts(b, p.Sets[0][0], 4000)
			b.ReportAllocs()
			for b.Loop() {
				u := replay(b, addrs, owners, bb.grow)
				if _, err := u.Allocate(p, Request{Owner: "new"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An agent: dual-stack pods come and go while 4,000 stay, first with addresses
// never used (IPv6, IPv4 /16), then with reused ones (IPv4 /20: 4,093).
func BenchmarkAllocateTakeFree(b *testing.B) {
	for _, v4 := range []string{"10.0.0.0/16", "10.0.0.0/20"} {
		b.Run(v4, func(b *testing.B) {
			p := mustPool(b, Set{subnetRange(v4)}, Set{subnetRange("fd00::/64")})
			addrs, owners := facts(b, p.Sets[0][0], 4000)
			addrs6, owners6 := facts(b, p.Sets[1][0], 4000)
			u := replay(b, append(addrs, addrs6...), append(owners, owners6...), 8000)
			now := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				now += 1e7
				g, err := u.Allocate(p, Request{Owner: "new", Now: now, Cooldown: 30e9})
				if err != nil {
					b.Fatal(err)
				}
				for _, a := range g {
					if err := u.Take(a.Addr, "new"); err != nil {
						b.Fatal(err)
					}
				}
				for _, a := range g {
					u.Free(a.Addr, now)
				}
			}
		})
	}
}

func BenchmarkStats(b *testing.B) {
	p := mustPool(b, Set{subnetRange("10.0.0.0/16")})
	addrs, owners := facts(b, p.Sets[0][0], 4000)
	u := replay(b, addrs, owners, 0)
	for b.Loop() {
		if st := u.Stats(p.Sets[0], 0, 30e9); st.Used != 4000 {
			b.Fatal(st)
		}
	}
}
