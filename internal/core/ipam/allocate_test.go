// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// step is one call in a scenario.
type step struct {
	do   string // allocate OWNER [WANT...], free ADDR, at N (the clock), reserve ADDR, unreserve ADDR
	want string // the addresses of the grant, ! for early, or a part of the error
}

func runSteps(t *testing.T, p Pool, cooldown int64, steps []step) {
	t.Helper()
	u, avoid, now := NewUsage(), map[netip.Addr]bool{}, int64(0)
	for i, s := range steps {
		f := strings.Fields(s.do)
		switch f[0] {
		case "at":
			if _, err := fmt.Sscan(f[1], &now); err != nil {
				t.Fatal(err)
			}
		case "free":
			u.Free(addr(f[1]), now)
		case "reserve", "unreserve":
			avoid[addr(f[1])] = f[0] == "reserve"
		case "allocate":
			r := Request{Owner: f[1], Now: now, Cooldown: cooldown, Avoid: func(a netip.Addr) bool { return avoid[a] }}
			for _, w := range f[2:] {
				r.Want = append(r.Want, addr(w))
			}
			got, err := u.Allocate(p, r)
			if text := describeGrant(got); err == nil && text != s.want {
				t.Fatalf("step %d, %s: got %s, want %s", i, s.do, text, s.want)
			} else if err != nil && (s.want == "" || !strings.Contains(err.Error(), s.want)) {
				t.Fatalf("step %d, %s: %v, want %s", i, s.do, err, s.want)
			}
			for _, a := range got {
				take(t, u, a.Addr.String(), f[1])
			}
		default:
			t.Fatalf("unknown step %s", s.do)
		}
	}
}

func describeGrant(g Grant) string {
	var parts []string
	for _, a := range g {
		s := a.Addr.String()
		if a.Early {
			s += "!"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, " ")
}

func TestAllocate(t *testing.T) {
	small := Set{rng("10.1.0.0/29", "", "10.1.0.3", "", ""), rng("10.2.0.0/31", "", "", "", "")} // .2 .3, then .0 .1
	for _, tt := range []struct {
		name  string
		sets  []Set
		steps []step
	}{
		{"never used first, then the oldest release of any range", []Set{small}, []step{
			{"allocate a", "10.1.0.2"}, {"at 10", ""}, {"free 10.1.0.2", ""},
			{"allocate b", "10.1.0.3"}, {"allocate c", "10.2.0.0"}, {"allocate d", "10.2.0.1"},
			{"at 20", ""}, {"free 10.2.0.1", ""}, {"at 30", ""}, {"free 10.1.0.3", ""},
			{"at 1000", ""},
			{"allocate e", "10.1.0.2"}, {"allocate f", "10.2.0.1"}, {"allocate g", "10.1.0.3"},
			{"allocate h", "no free address in 10.1.0.0/29 (10.1.0.1-10.1.0.3), 10.2.0.0/31 (10.2.0.0-10.2.0.1): 4 of 4 used"},
		}},
		{"cool-down ends exactly, and is cut short under pressure", []Set{{rng("10.2.0.0/31", "", "", "", "")}}, []step{
			{"allocate a", "10.2.0.0"}, {"allocate b", "10.2.0.1"}, {"at 10", ""}, {"free 10.2.0.1", ""}, {"at 20", ""}, {"free 10.2.0.0", ""},
			{"at 40", ""}, {"allocate c", "10.2.0.1"}, {"allocate d", "10.2.0.0!"},
		}},
		{"a repeated ADD gets the same", []Set{small, {subnetRange("fd00::/64")}}, []step{
			{"allocate a", "10.1.0.2 fd00::2"}, {"allocate a", "10.1.0.2 fd00::2"},
			{"allocate b", "10.1.0.3 fd00::3"}, {"free fd00::2", ""}, {"allocate a", "10.1.0.2 fd00::4"},
		}},
		{"requests", []Set{small, {subnetRange("fd00::/64")}}, []step{
			{"allocate a fd00::9", "10.1.0.2 fd00::9"}, {"allocate b 10.2.0.1 fd00::3", "10.2.0.1 fd00::3"},
			{"allocate c 10.2.0.1", "10.2.0.1 is used by b"}, {"allocate b 10.2.0.1", "10.2.0.1 fd00::3"},
			{"free fd00::9", ""}, {"allocate d fd00::9", "10.1.0.3 fd00::9"}, // cooling, yet on request, so not "early"
			{"allocate e 10.2.0.0 10.2.0.0", "10.2.0.0 is requested twice"},
			{"allocate e 10.2.0.0 10.1.0.3", "10.1.0.3 and 10.2.0.0 are both requested from"},
			{"allocate e 10.1.0.1", "10.1.0.1 is the gateway of range 10.1.0.0/29"},
			{"allocate e 10.1.0.4", "10.1.0.4 is in subnet 10.1.0.0/29 but in no range"},
			{"allocate e 192.0.2.1", "192.0.2.1 is in no range of the pool; request an address of 10.1.0.0/29 (10.1.0.1-10.1.0.3), "},
			{"allocate e ::ffff:10.2.0.0", "is in no range"},
			{"allocate f fd00::4", "10.2.0.0 fd00::4"}, {"allocate g", "no free address in 10.1.0.0/29"},
			{"allocate g fd00::5", "no free address in 10.1.0.0/29"}, {"free 10.2.0.0", ""}, {"allocate h", "10.2.0.0! fd00::2"},
		}},
		{"reserved elsewhere", []Set{small}, []step{
			{"reserve 10.1.0.2", ""}, {"allocate a 10.1.0.2", "10.1.0.2 is reserved elsewhere"}, {"allocate a", "10.1.0.3"},
			{"allocate b", "10.2.0.0"}, {"unreserve 10.1.0.2", ""}, {"allocate c", "10.1.0.2"}, {"allocate d", "10.2.0.1"},
			{"free 10.1.0.3", ""}, {"free 10.2.0.0", ""}, {"reserve 10.1.0.3", ""}, {"allocate e", "10.2.0.0!"},
			{"allocate f", "3 of 4 used"}, {"allocate f", "1 reserved elsewhere"}, {"unreserve 10.1.0.3", ""}, {"allocate f", "10.1.0.3!"},
			{"reserve 10.1.0.3", ""}, {"allocate f", "4 of 4 used"},
		}},
		{"drained", []Set{{rng("10.1.0.0/29", "", "", "", "10.1.0.0/29")}}, []step{
			{"allocate a", "no free address in 10.1.0.0/29 (10.1.0.1-10.1.0.6): its gateways and excluded prefixes cover all of it"},
			{"allocate a 10.1.0.3", "10.1.0.3 is excluded from range 10.1.0.0/29"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { runSteps(t, mustPool(t, tt.sets...), 30, tt.steps) })
	}
}

func TestAllocateWithoutAvoid(t *testing.T) {
	u, p := NewUsage(), mustPool(t, Set{subnetRange("10.1.0.0/30")})
	if g, err := u.Allocate(p, Request{Owner: "a"}); err != nil || describeGrant(g) != "10.1.0.2" {
		t.Fatalf("%+v, %v", g, err)
	}
	if u.Len() != 0 {
		t.Error("Allocate took the address")
	}
}

// Gaps and sizes beyond counting are crossed in one step.
func TestAllocateFromHugeRanges(t *testing.T) {
	for _, tt := range []struct {
		r    Range
		want string
	}{
		{subnetRange("::/0"), "::2 ::3 ::4"},
		{subnetRange("0.0.0.0/0"), "0.0.0.2 0.0.0.3 0.0.0.4"},
		{rng("::/0", "", "", "", "::/1 8000::/2"), "c000:: c000::1 c000::2"},
		{rng("fd00::/64", "", "", "fd00::8000:0:0:1", "fd00::/65"), "fd00::8000:0:0:0 fd00::8000:0:0:2 fd00::8000:0:0:3"},
		{rng("::/0", "::fffe:ffff:ffff", "", "", ""), "::fffe:ffff:ffff ::1:0:0:0 ::1:0:0:1"}, // over the mapped block
		{rng("0.0.0.0/0", "", "255.255.255.255", "", "0.0.0.0/1 128.0.0.0/2 192.0.0.0/3 224.0.0.0/4 240.0.0.0/5 248.0.0.0/6 252.0.0.0/7 254.0.0.0/8 255.0.0.0/9"),
			"255.128.0.0 255.128.0.1 255.128.0.2"},
	} {
		u, p := NewUsage(), mustPool(t, Set{tt.r})
		for _, want := range strings.Fields(tt.want) {
			g, err := u.Allocate(p, Request{Owner: "o"})
			if err != nil || g[0].Addr != addr(want) {
				t.Fatalf("%s: got %+v, %v, want %s", tt.r, g, err, want)
			}
			take(t, u, want, want)
		}
	}
}

// More addresses are avoided than a view remembers: each must be found again.
func TestManyAvoided(t *testing.T) {
	u, p := NewUsage(), mustPool(t, Set{subnetRange("fd00::/64")})
	border := addr("fd00::3000") // 12,286 addresses below it, more than maxLoose
	request := Request{Owner: "new", Avoid: func(a netip.Addr) bool { return a.Less(border) }}
	for i := range 3 {
		g, err := u.Allocate(p, request)
		if err != nil || g[0].Addr.Less(border) {
			t.Fatalf("%+v, %v", g, err)
		}
		take(t, u, g[0].Addr.String(), fmt.Sprint(i))
	}
	for _, want := range walk(addr("fd00::2"), addr("fd00::2fff")) {
		g, err := u.Allocate(p, Request{Owner: "new"})
		if err != nil || g[0].Addr != want {
			t.Fatalf("got %+v, %v, want %s", g, err, want)
		}
		take(t, u, want.String(), want.String())
	}
	if g, err := u.Allocate(p, Request{Owner: "new"}); err != nil || g[0].Addr != addr("fd00::3003") {
		t.Fatalf("%+v, %v", g, err)
	}
}

// An Avoid that always holds ends in an error, not in an endless search.
func TestEverythingAvoided(t *testing.T) {
	u, p := NewUsage(), mustPool(t, Set{subnetRange("fd00::/64")})
	calls := 0
	_, err := u.Allocate(p, Request{Owner: "o", Avoid: func(netip.Addr) bool { calls++; return true }})
	var exhausted *ExhaustedError
	if !errors.As(err, &exhausted) || calls != maxAvoided {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// Ranges that come with the request must not pile up.
func TestViewsAreBounded(t *testing.T) {
	u, base := NewUsage(), addr("10.0.0.0")
	for range 3 * maxViews {
		p := mustPool(t, Set{{Subnet: netip.PrefixFrom(base, 32)}})
		if g, err := u.Allocate(p, Request{Owner: "o"}); err != nil || g[0].Addr != base {
			t.Fatalf("%+v, %v", g, err)
		}
		base = base.Next()
	}
	if len(u.views) > maxViews {
		t.Errorf("%d views", len(u.views))
	}
}

// A search looks at each address once, not at each request. Avoid sees every
// never-used address that is looked at.
func TestAllocateStartsWhereTheLastEnded(t *testing.T) {
	u, p := NewUsage(), mustPool(t, Set{subnetRange("10.0.0.0/16")})
	for i := range 4000 {
		g, err := u.Allocate(p, Request{Owner: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		take(t, u, g[0].Addr.String(), fmt.Sprint(i))
		v := u.view(p.Sets[0][0])
		if v.cursor.addr != g[0].Addr {
			t.Fatalf("the cursor is at %s, granted was %s", v.cursor.addr, g[0].Addr)
		}
	}
}

func TestStats(t *testing.T) {
	u := NewUsage()
	p := mustPool(t, Set{rng("10.1.0.0/28", "", "10.1.0.9", "", "10.1.0.8/32")})
	for _, a := range []string{"10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.8", "10.1.0.12", "10.2.0.1", "fd00::1"} {
		take(t, u, a, "o")
	}
	u.Free(addr("10.1.0.3"), 10)
	u.Free(addr("10.1.0.4"), 20)
	u.Free(addr("10.2.0.1"), 20)
	if got, want := u.Stats(p.Sets[0], 45, 30), (Stats{Total: 7, Used: 1, Free: 6, Cooling: 1, Foreign: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
