// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is Usage without any cleverness: lists, walked from the start.
type model struct {
	used     map[netip.Addr]string
	released []modelRelease
	memory   memory
	pools    []Pool
	avoid    map[netip.Addr]bool
	now      int64
	cooldown int64
	sut      *Usage
}

type modelRelease struct {
	addr netip.Addr
	at   int64
}

var owners = []string{"net/a/eth0", "net/b/eth0", "net/c/eth0", "ns/d", "ns/e"}

// modelSubnets has ranges small enough to exhaust and one too large for it.
var modelSubnets = []string{"10.1.0.0/29", "10.1.0.8/30", "10.1.0.12/31", "fd00::/125", "fd00::8/126", "fd01::/64"}

func newModel(t *rapid.T) *model {
	m := &model{
		used: map[netip.Addr]string{}, avoid: map[netip.Addr]bool{}, now: 1000,
		cooldown: rapid.SampledFrom([]int64{0, 5, 50}).Draw(t, "cooldown"),
		memory: memory{
			keep: rapid.IntRange(1, 12).Draw(t, "keep"),
			age:  rapid.SampledFrom([]uint64{0, 20, 1000}).Draw(t, "age"),
			most: rapid.IntRange(12, 30).Draw(t, "most"),
		},
		sut: NewUsage(),
	}
	m.sut.memory = m.memory
	for len(m.pools) < 3 { // the pools share the scope, and may share addresses
		if p, err := NewPool(drawSets(t)); err == nil {
			m.pools = append(m.pools, p)
		}
	}
	return m
}

func drawSets(t *rapid.T) []Set {
	var sets []Set
	for range rapid.IntRange(1, 2).Draw(t, "sets") {
		var s Set
		for range rapid.IntRange(1, 2).Draw(t, "ranges") {
			if rapid.Bool().Draw(t, "large") {
				s = append(s, mustDraw(t, rng("fd01::/64", "", "", "", "fd01::4/126")))
			} else {
				s = append(s, drawRange(t, modelSubnets[:5]))
			}
		}
		sets = append(sets, s)
	}
	return sets
}

func mustDraw(t *rapid.T, r Range) Range {
	canonical, err := NewRange(r)
	if err != nil {
		t.Fatal(err)
	}
	return canonical
}

func (m *model) isReleased(a netip.Addr) bool {
	return slices.ContainsFunc(m.released, func(r modelRelease) bool { return r.addr == a })
}

func (m *model) unrelease(a netip.Addr) {
	m.released = slices.DeleteFunc(m.released, func(r modelRelease) bool { return r.addr == a })
}

func (m *model) release(a netip.Addr, at int64) {
	m.unrelease(a)
	for i := range m.released {
		m.released[i].at = min(m.released[i].at, at)
	}
	m.released = append(m.released, modelRelease{a, at})
	for len(m.released) > m.memory.most ||
		(len(m.released) > m.memory.keep && at-m.released[0].at > int64(m.memory.age)) {
		m.released = m.released[1:]
	}
}

func (m *model) cooling(at int64) bool { return m.cooldown > 0 && m.now-at < m.cooldown }

// choose is the order of choice as the package documentation has it.
func (m *model) choose(s Set, owner string) (Allocation, bool) {
	for _, r := range s {
		var lowest netip.Addr
		for a, o := range m.used {
			if o == owner && r.Contains(a) && !m.avoid[a] && (!lowest.IsValid() || a.Less(lowest)) {
				lowest = a
			}
		}
		if lowest.IsValid() {
			return Allocation{Addr: lowest, Range: r}, true
		}
	}
	for _, r := range s {
		for a := r.First; a.IsValid() && !r.Last.Less(a); a = a.Next() {
			if _, ok := m.used[a]; !ok && r.Contains(a) && !m.isReleased(a) && !m.avoid[a] {
				return Allocation{Addr: a, Range: r}, true
			}
		}
	}
	for _, rel := range m.released {
		for _, r := range s {
			if r.Contains(rel.addr) && !m.avoid[rel.addr] {
				return Allocation{Addr: rel.addr, Range: r, Early: m.cooling(rel.at)}, true
			}
		}
	}
	return Allocation{}, false
}

// allocate returns the grant, or the error's type and subject.
func (m *model) allocate(p Pool, owner string, want []netip.Addr) (Grant, string) {
	grant := make(Grant, len(p.Sets))
	for _, a := range want {
		at := -1
		for i, s := range p.Sets {
			for _, r := range s {
				if r.Contains(a) {
					if at = i; grant[i].Addr.IsValid() {
						return nil, fmt.Sprintf("want %s %s", a, grant[i].Addr)
					}
					grant[i] = Allocation{Addr: a, Range: r}
				}
			}
		}
		if at < 0 {
			return nil, fmt.Sprintf("not in pool %s", a)
		}
		if o, ok := m.used[a]; ok && o != owner {
			return nil, fmt.Sprintf("in use %s %s", a, o)
		}
		if m.avoid[a] {
			return nil, fmt.Sprintf("in use %s %s", a, ReservedElsewhere)
		}
	}
	for i, s := range p.Sets {
		if grant[i].Addr.IsValid() {
			continue
		}
		var ok bool
		if grant[i], ok = m.choose(s, owner); !ok {
			return nil, fmt.Sprintf("exhausted %s", s)
		}
	}
	return grant, ""
}

func describe(err error) string {
	var exhausted *ExhaustedError
	var inUse *InUseError
	var notInPool *NotInPoolError
	var want *WantError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exhausted):
		return fmt.Sprintf("exhausted %s", exhausted.Set)
	case errors.As(err, &inUse):
		return fmt.Sprintf("in use %s %s", inUse.Addr, inUse.Owner)
	case errors.As(err, &notInPool):
		return fmt.Sprintf("not in pool %s", notInPool.Addr)
	case errors.As(err, &want):
		return fmt.Sprintf("want %s %s", want.Addr, want.Other)
	}
	return err.Error()
}

// Actions of the state machine.

func (m *model) drawAddr(t *rapid.T) netip.Addr {
	p := netip.MustParsePrefix(rapid.SampledFrom(modelSubnets).Draw(t, "in"))
	a := p.Addr()
	for range rapid.IntRange(0, 8).Draw(t, "offset") {
		a = a.Next()
	}
	return a
}

func (m *model) drawUsed(t *rapid.T) netip.Addr {
	if len(m.used) == 0 {
		t.Skip("nothing is used")
	}
	all := make([]netip.Addr, 0, len(m.used))
	for a := range m.used {
		all = append(all, a)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return rapid.SampledFrom(all).Draw(t, "used address")
}

func (m *model) Allocate(t *rapid.T) {
	p := rapid.SampledFrom(m.pools).Draw(t, "pool")
	owner := rapid.SampledFrom(owners).Draw(t, "owner")
	if rapid.IntRange(0, 2).Draw(t, "new owner") > 0 {
		owner = fmt.Sprintf("net/%d/eth0", rapid.IntRange(0, 40).Draw(t, "id"))
	}
	var want []netip.Addr
	if rapid.IntRange(0, 3).Draw(t, "request") == 0 {
		for range rapid.IntRange(1, 2).Draw(t, "wants") {
			want = append(want, m.drawAddr(t))
		}
	}
	r := Request{Owner: owner, Want: want, Now: m.now, Cooldown: m.cooldown, Avoid: func(a netip.Addr) bool { return m.avoid[a] }}
	got, err := m.sut.Allocate(p, r)
	wantGrant, wantErr := m.allocate(p, owner, want)
	if describe(err) != wantErr || (err == nil && !reflect.DeepEqual(got, wantGrant)) {
		t.Fatalf("got %+v, %v; want %+v, %s", got, err, wantGrant, wantErr)
	}
	if again, err2 := m.rebuilt(t).Allocate(p, r); !reflect.DeepEqual(again, got) || describe(err2) != wantErr {
		t.Fatalf("rebuilt from its facts: %+v, %v; before %+v, %v", again, err2, got, err)
	}
	if err != nil {
		if got != nil {
			t.Fatalf("error %v with a grant", err)
		}
		m.checkExhausted(t, err)
		return
	}
	m.checkGrant(t, p, r, got)
	if rapid.IntRange(0, 4).Draw(t, "discard") == 0 {
		return // the caller died before it took them
	}
	for _, a := range got {
		m.take(t, a.Addr, owner)
	}
}

// checkGrant states the promises without reference to the model's choice.
func (m *model) checkGrant(t *rapid.T, p Pool, r Request, g Grant) {
	for i, a := range g {
		if !slices.ContainsFunc(p.Sets[i], func(r Range) bool { return r.equal(a.Range) }) || !a.Range.Contains(a.Addr) {
			t.Fatalf("%s is not allocatable from set %d", a.Addr, i)
		}
		if o, ok := m.used[a.Addr]; ok && o != r.Owner {
			t.Fatalf("%s belongs to %s", a.Addr, o)
		}
		if m.avoid[a.Addr] {
			t.Fatalf("%s is reserved elsewhere", a.Addr)
		}
		for _, rel := range m.released {
			if rel.addr == a.Addr && m.cooling(rel.at) && !a.Early && !slices.Contains(r.Want, a.Addr) {
				t.Fatalf("%s is cooling and not marked", a.Addr)
			}
		}
	}
	for _, a := range r.Want {
		if !slices.ContainsFunc(g, func(x Allocation) bool { return x.Addr == a }) {
			t.Fatalf("requested %s, got %+v", a, g)
		}
	}
}

func (m *model) checkExhausted(t *rapid.T, err error) {
	var e *ExhaustedError
	if !errors.As(err, &e) {
		return
	}
	used, avoided := 0, 0
	for _, r := range e.Set {
		for a := range m.used {
			if r.Contains(a) {
				used++
			}
		}
		for a := range m.avoid {
			if _, ok := m.used[a]; !ok && r.Contains(a) {
				avoided++
			}
		}
	}
	if e.Used != used || e.Total != uint64(used+avoided) {
		t.Fatalf("%+v: %d used, %d reserved", e, used, avoided)
	}
	sum := 0
	for _, g := range e.ByOwnerGroup {
		sum += g.Count
	}
	if sum != used {
		t.Fatalf("groups %+v do not add up to %d", e.ByOwnerGroup, used)
	}
}

// rebuilt is what a new process makes of the facts.
func (m *model) rebuilt(t *rapid.T) *Usage {
	u := NewUsage()
	u.memory = m.memory
	for a, owner := range m.sut.Used {
		if err := u.Take(a, owner); err != nil {
			t.Fatal(err)
		}
	}
	for a, at := range m.sut.Released {
		u.Restore(a, at)
	}
	return u
}

func (m *model) take(t *rapid.T, a netip.Addr, owner string) {
	holder, held := m.used[a]
	err := m.sut.Take(a, owner)
	if held && holder != owner {
		var inUse *InUseError
		if !errors.As(err, &inUse) || inUse.Owner != holder || inUse.Addr != a {
			t.Fatalf("take %s, held by %s, for %s: %v", a, holder, owner, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("take %s for %s: %v", a, owner, err)
	}
	m.used[a] = owner
	m.unrelease(a)
}

func (m *model) Take(t *rapid.T) {
	m.take(t, m.drawAddr(t), rapid.SampledFrom(owners).Draw(t, "owner"))
}

func (m *model) free(a netip.Addr) {
	m.sut.Free(a, m.now)
	if _, ok := m.used[a]; ok {
		delete(m.used, a)
		m.release(a, m.now)
	}
}

func (m *model) Free(t *rapid.T)    { m.free(m.drawUsed(t)) }
func (m *model) FreeAny(t *rapid.T) { m.free(m.drawAddr(t)) }

// Churn is a burst of pods that come and go: it fills pools and the queue.
func (m *model) Churn(t *rapid.T) {
	for range rapid.IntRange(5, 40).Draw(t, "length") {
		m.now++
		if len(m.used) > 0 && rapid.IntRange(0, 2).Draw(t, "free") == 0 {
			m.Free(t)
		} else {
			m.Allocate(t)
		}
	}
}

func (m *model) Restore(t *rapid.T) {
	a := m.drawAddr(t)
	m.sut.Restore(a, m.now)
	if _, ok := m.used[a]; !ok {
		m.release(a, m.now)
	}
}

func (m *model) Forget(t *rapid.T) {
	a := m.drawAddr(t)
	m.sut.Forget(a)
	delete(m.used, a)
	m.unrelease(a)
}

func (m *model) Reserve(t *rapid.T) {
	a := m.drawAddr(t)
	if m.avoid[a] {
		delete(m.avoid, a)
	} else {
		m.avoid[a] = true
	}
}

// Tick moves the clock, now and then backwards.
func (m *model) Tick(t *rapid.T) { m.now += rapid.Int64Range(-10, 30).Draw(t, "ns") }

func (m *model) Reconfigure(t *rapid.T) {
	if p, err := NewPool(drawSets(t)); err == nil {
		m.pools[rapid.IntRange(0, len(m.pools)-1).Draw(t, "which")] = p
	}
}

// Check runs after every action.
func (m *model) Check(t *rapid.T) {
	if m.sut.Len() != len(m.used) {
		t.Fatalf("%d used, want %d", m.sut.Len(), len(m.used))
	}
	for a, owner := range m.sut.Used {
		if got, ok := m.sut.Owner(a); m.used[a] != owner || got != owner || !ok {
			t.Fatalf("%s is used by %q, %q, want %q", a, owner, got, m.used[a])
		}
	}
	var released []modelRelease
	for a, at := range m.sut.Released {
		released = append(released, modelRelease{a, at})
	}
	if !slices.Equal(released, m.released) {
		t.Fatalf("released %v, want %v", released, m.released)
	}
	for _, p := range m.pools {
		for _, s := range p.Sets {
			if got, want := m.sut.Stats(s, m.now, m.cooldown), m.stats(s); got != want {
				t.Fatalf("stats of %s: %+v, want %+v", s, got, want)
			}
		}
	}
}

func (m *model) stats(s Set) Stats {
	st := Stats{Total: s.Size()}
	in := func(a netip.Addr) bool {
		return slices.ContainsFunc(s, func(r Range) bool { return r.Contains(a) })
	}
	for a := range m.used {
		if in(a) {
			st.Used++
		} else if slices.ContainsFunc(s, func(r Range) bool { return r.Subnet.Contains(a) }) {
			st.Foreign++
		}
	}
	for _, r := range m.released {
		if in(r.addr) && m.cooling(r.at) {
			st.Cooling++
		}
	}
	st.Free = st.Total - uint64(st.Used)
	return st
}

func TestUsageAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(rapid.StateMachineActions(m))
	})
}
