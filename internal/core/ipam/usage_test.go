// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func take(t testing.TB, u *Usage, a, owner string) {
	t.Helper()
	if err := u.Take(addr(a), owner); err != nil {
		t.Fatal(err)
	}
}

func releases(u *Usage) []string {
	var all []string
	for a, at := range u.Released {
		all = append(all, fmt.Sprintf("%s@%d", a, at))
	}
	return all
}

func wantReleases(t testing.TB, u *Usage, want ...string) {
	t.Helper()
	if got := releases(u); !slices.Equal(got, want) {
		t.Errorf("released %v, want %v", got, want)
	}
}

func TestTake(t *testing.T) {
	u := NewUsage()
	take(t, u, "10.1.0.2", "net/a/eth0")
	take(t, u, "10.1.0.2", "net/a/eth0") // a repeated ADD
	err := u.Take(addr("10.1.0.2"), "net/b/eth0")
	var inUse *InUseError
	if !errors.As(err, &inUse) || *inUse != (InUseError{addr("10.1.0.2"), "net/a/eth0"}) {
		t.Errorf("second owner: %v", err)
	}
	for _, a := range []string{"", "::ffff:10.1.0.3", "fe80::1%eth0"} {
		if err := u.Take(addr(a), "net/a/eth0"); err == nil {
			t.Errorf("took %q", a)
		}
	}
	wantMessage(t, u.Take(addr("10.1.0.3"), ""), "10.1.0.3", "owner is empty")
	if u.Len() != 1 {
		t.Errorf("%d used", u.Len())
	}
	if owner, ok := u.Owner(addr("10.1.0.2")); owner != "net/a/eth0" || !ok {
		t.Errorf("owner %q, %v", owner, ok)
	}
	if owner, ok := u.Owner(addr("10.1.0.3")); owner != "" || ok {
		t.Errorf("owner of a free address %q, %v", owner, ok)
	}
}

func TestFreeRestoreForget(t *testing.T) {
	u := NewUsage()
	u.Free(addr("10.1.0.9"), 1) // never used
	wantReleases(t, u)
	take(t, u, "10.1.0.2", "o")
	take(t, u, "10.1.0.3", "o")
	u.Free(addr("10.1.0.3"), 5)
	u.Free(addr("10.1.0.3"), 9) // a repeated DEL does not start the cool-down again
	wantReleases(t, u, "10.1.0.3@5")
	u.Restore(addr("10.1.0.2"), 6) // is used
	u.Restore(addr("fe80::1%eth0"), 6)
	u.Restore(addr("::ffff:10.1.0.4"), 6)
	u.Restore(netip.Addr{}, 6)
	wantReleases(t, u, "10.1.0.3@5")
	u.Restore(addr("10.1.0.5"), 7)
	u.Free(addr("10.1.0.2"), 8)
	wantReleases(t, u, "10.1.0.3@5", "10.1.0.5@7", "10.1.0.2@8")
	take(t, u, "10.1.0.5", "o") // from the middle
	wantReleases(t, u, "10.1.0.3@5", "10.1.0.2@8")
	u.Forget(addr("10.1.0.3"))
	u.Forget(addr("10.1.0.5"))
	u.Forget(addr("10.1.0.7"))
	wantReleases(t, u, "10.1.0.2@8")
	if u.Len() != 0 || !u.fresh(addr("10.1.0.3")) || !u.fresh(addr("10.1.0.5")) {
		t.Error("a forgotten address is not fresh")
	}
}

func TestGrowKeepsFacts(t *testing.T) {
	u := NewUsage()
	take(t, u, "10.1.0.2", "a")
	u.Grow(100)
	u.Grow(1)
	if owner, _ := u.Owner(addr("10.1.0.2")); owner != "a" || u.Len() != 1 {
		t.Errorf("owner %q, %d used", owner, u.Len())
	}
}

func TestIterationStops(t *testing.T) {
	u := NewUsage()
	for _, a := range []string{"10.1.0.4", "10.1.0.2", "10.1.0.3"} {
		take(t, u, a, "o")
	}
	for a := range u.Used {
		if a != addr("10.1.0.2") {
			t.Errorf("first used address %s", a)
		}
		break
	}
	u.Free(addr("10.1.0.4"), 1)
	u.Free(addr("10.1.0.3"), 2)
	for a := range u.Released {
		if a != addr("10.1.0.4") {
			t.Errorf("first released address %s", a)
		}
		break
	}
}

// Held answers by search, then by a new index, then by the maintained index.
func TestHeld(t *testing.T) {
	u := NewUsage()
	take(t, u, "fd00::2", "a")
	take(t, u, "10.1.0.2", "a")
	take(t, u, "10.1.0.3", "b")
	for i := range 3 {
		if got := u.Held("a"); !slices.Equal(got, []netip.Addr{addr("10.1.0.2"), addr("fd00::2")}) {
			t.Errorf("call %d: %v", i, got)
		}
	}
	take(t, u, "10.1.0.1", "a")
	u.Free(addr("10.1.0.2"), 1)
	u.Free(addr("10.1.0.3"), 1)
	if got := u.Held("a"); !slices.Equal(got, []netip.Addr{addr("10.1.0.1"), addr("fd00::2")}) {
		t.Errorf("after changes: %v", got)
	}
	if got := u.Held("b"); got != nil || len(u.owners) != 1 {
		t.Errorf("b holds %v; index %v", got, u.owners)
	}
	got := u.Held("a")
	got[0] = netip.Addr{}
	if u.Held("a")[0] != addr("10.1.0.1") {
		t.Error("the caller can change the index")
	}
}

// A clock that is set back must not leave addresses cooling until it is right.
func TestClockSetBack(t *testing.T) {
	u := NewUsage()
	u.Restore(addr("10.1.0.2"), 100)
	u.Restore(addr("10.1.0.3"), 9000)
	u.Restore(addr("10.1.0.4"), 9001)
	u.Restore(addr("10.1.0.5"), 200)
	wantReleases(t, u, "10.1.0.2@100", "10.1.0.3@200", "10.1.0.4@200", "10.1.0.5@200")
}

func TestCooling(t *testing.T) {
	const least, most = -1 << 63, 1<<63 - 1
	for _, tt := range []struct {
		at, now, cooldown int64
		want              bool
	}{
		{100, 100, 30, true}, {100, 129, 30, true}, {100, 130, 30, false},
		{100, 99, 30, true}, {100, 100, 0, false}, {100, 99, 0, false}, {100, 100, -1, false},
		{least, most, most, false}, {most, least, 1, true}, {least, 0, most, false}, {0, most - 1, most, true},
	} {
		if got := cooling(tt.at, tt.now, tt.cooldown); got != tt.want {
			t.Errorf("cooling(%d, %d, %d) = %v", tt.at, tt.now, tt.cooldown, got)
		}
	}
}

// Releases come in order of time; the index of the queue survives sweeping.
func TestQueueSweeps(t *testing.T) {
	var q queue
	all := walk(addr("10.1.0.0"), addr("10.1.3.255"))
	for i, a := range all {
		q.push(a, int64(i))
	}
	for i, a := range all {
		if i%16 != 5 && !q.remove(a) {
			t.Fatalf("%s was not there", a)
		}
	}
	if q.len() != 64 || len(q.entries) > 2*64+17 {
		t.Errorf("%d live of %d entries", q.len(), len(q.entries))
	}
	for i, a := range all {
		if q.has(a) != (i%16 == 5) {
			t.Fatalf("%s: %v", a, q.has(a))
		}
		if q.has(a) && q.entries[q.from(q.index[a])].addr != a {
			t.Fatalf("index of %s leads elsewhere", a)
		}
	}
	if head, ok := q.oldest(); !ok || head.addr != all[5] || q.span() != 1023-5 {
		t.Errorf("head %+v, span %d", head, q.span())
	}
	for _, a := range all {
		q.remove(a)
	}
	if _, ok := q.oldest(); ok || q.len() != 0 || q.span() != 0 {
		t.Error("not empty")
	}
}

func TestReleasesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name string
		gap  int64 // ns between two releases
		n    int
		want int
	}{
		{"all within the hour", 1, 70_000, 65_536},
		{"one a second", 1e9, 10_000, 4096},
		{"ten a second", 1e8, 50_000, 36_001},
		{"one a day", 86400e9, 5000, 4096},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := NewUsage()
			p := mustPool(t, Set{subnetRange("fd00::/64")})
			u.view(p.Sets[0][0]).cursor = cursor{0, addr("fd00::ffff:0")}
			a := addr("fd00::2")
			for i := range tt.n {
				u.Restore(a, int64(i)*tt.gap)
				a = a.Next()
			}
			if got := u.released.len(); got != tt.want {
				t.Errorf("%d releases kept, want %d", got, tt.want)
			}
			// What was dropped is found again, and the lowest first.
			if g, err := u.Allocate(p, Request{Owner: "o"}); err != nil || g[0].Addr != addr("fd00::2") {
				t.Errorf("got %+v, %v", g, err)
			}
			if n := len(u.views[viewKey{addr("fd00::1"), addr("fd00::ffff:ffff:ffff:ffff")}].loose); n > maxLoose {
				t.Errorf("%d loose addresses", n)
			}
		})
	}
}
