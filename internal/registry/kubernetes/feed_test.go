// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"maps"
	"net/netip"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// past is what one kind's history has at a version: objects by name.
type past struct {
	changed string // name
	uid     string // of what changed
	deleted bool
	state   map[string]revision // by name
}

// revision is one object. UIDs are the versions of the creations.
type revision struct{ version, uid string }

// history returns one with an entry for each version; 0 is empty.
func history(t *rapid.T) []past {
	all := []past{{state: map[string]revision{}}}
	for v := 1; v <= rapid.IntRange(1, 30).Draw(t, "changes"); v++ {
		before := all[v-1].state
		now := past{changed: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), uid: strconv.Itoa(v), state: maps.Clone(before)}
		one, there := before[now.changed]
		if there {
			now.uid = one.uid
		}
		if there && rapid.IntRange(0, 2).Draw(t, "deletes") == 0 {
			now.deleted = true
			delete(now.state, now.changed)
		} else {
			now.state[now.changed] = revision{strconv.Itoa(v), now.uid}
		}
		all = append(all, now)
	}
	return all
}

func versioned(name, uid, version string) *item {
	return &item{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version},
		value:      cluster.Lease{UID: uid, Version: version},
	}
}

// told plays what a reflector and answers to writes may tell, in any order that
// there can be, and checks the Store after each step.
type told struct {
	*rapid.T
	all     []past
	feed    *feed
	seen    int            // how far the reflector is
	written int            // how far the server is: an answer is not from the future
	floor   map[string]int // the version that the Store is known to have, or a later one
}

func (p *told) step() {
	switch rapid.IntRange(0, 4).Draw(p.T, "step") {
	case 0, 1: // the server goes on
		p.written = min(p.written+1, len(p.all)-1)
	case 2: // an answer arrives, late perhaps
		if v := rapid.IntRange(0, p.written).Draw(p.T, "answer"); v > 0 {
			p.answer(v)
		}
	case 3: // everything is read again
		p.seen = rapid.IntRange(p.seen, p.written).Draw(p.T, "list")
		p.list(p.seen)
	default: // the watch goes on
		p.watch()
	}
	p.check()
}

func (p *told) answer(v int) {
	h := p.all[v]
	if !h.deleted {
		p.feed.wrote(versioned(h.changed, h.uid, strconv.Itoa(v)))
		return
	}
	if p.lease(h.changed).UID == h.uid {
		p.floor[h.changed] = v
	}
	p.feed.deleted(h.changed, types.UID(h.uid))
	if p.lease(h.changed).UID == h.uid {
		p.Fatalf("%s is still there, although its deletion was answered", h.changed)
	}
}

func (p *told) lease(name string) (l cluster.Lease) {
	p.feed.store.View(func(s *registry.State) { l = s.Leases[name] })
	return l
}

func (p *told) list(v int) {
	var list []any
	for name, one := range p.all[v].state {
		list = append(list, versioned(name, one.uid, one.version))
	}
	_ = p.feed.Replace(list, strconv.Itoa(v))
}

func (p *told) watch() {
	if p.seen >= p.written {
		return
	}
	p.seen++
	h := p.all[p.seen]
	i := versioned(h.changed, h.uid, strconv.Itoa(p.seen))
	if h.deleted {
		_ = p.feed.Delete(i)
	} else {
		_ = p.feed.Update(i)
	}
}

// check: no object goes back.
func (p *told) check() {
	p.feed.store.View(func(s *registry.State) {
		for _, name := range []string{"a", "b", "c"} {
			l, there := s.Leases[name]
			version, _ := strconv.Atoi(l.Version)
			_, was := p.all[p.floor[name]].state[name]
			switch floor := p.floor[name]; {
			case there && version < floor:
				p.Fatalf("%s goes back from %d to %d", name, floor, version)
			case there:
				p.floor[name] = version
			case was:
				p.floor[name] = p.deletion(name, floor)
			}
		}
	})
}

// deletion returns when an object that was there went away.
func (p *told) deletion(name string, from int) int {
	for v := from; v <= p.written; v++ {
		if _, there := p.all[v].state[name]; !there {
			return v
		}
	}
	p.Fatalf("%s of version %d is gone, which it never was", name, from)
	return 0
}

func TestStoreNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &told{T: t, all: history(t), feed: newFeed(registry.SubnetLease, registry.NewStore(), func() {}), floor: map[string]int{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p.step()
		}
		if p.seen == 0 {
			p.list(0)
		}
		for p.written = len(p.all) - 1; p.seen < p.written; {
			p.watch()
			p.check()
		}
		got := map[string]revision{}
		p.feed.store.View(func(s *registry.State) {
			for name, l := range s.Leases {
				got[name] = revision{l.Version, l.UID}
			}
		})
		if diff := cmp.Diff(p.all[p.written].state, got, cmp.AllowUnexported(revision{})); diff != "" {
			t.Fatalf("in the end, server (-), Store (+):\n%s", diff)
		}
		if len(p.feed.ahead) > 0 {
			t.Fatalf("%v is still kept", p.feed.ahead)
		}
	})
}

// Of two answers the newer one counts, in whichever order they come.
func TestAnswersOutOfOrder(t *testing.T) {
	store := registry.NewStore()
	f := newFeed(registry.SubnetLease, store, func() {})
	f.wrote(versioned("early", "u", "9")) // before anything was read
	_ = f.Replace(nil, "10")
	f.wrote(versioned("a", "u", "12"))
	f.wrote(versioned("a", "u", "11"))
	_ = f.Update(versioned("a", "u", "11"))
	store.View(func(s *registry.State) {
		if len(s.Leases) != 1 || s.Leases["a"].Version != "12" {
			t.Errorf("leases %v, want a of version 12", s.Leases)
		}
	})
}

// What was deleted stays so, whatever the reflector still has to tell of it; what
// has its name afterwards counts.
func TestDeletedBeforeTheWatchTellsIt(t *testing.T) {
	const none = ""
	for name, c := range map[string]struct {
		tell func(*feed)
		uid  string // of a, in the end
		kept int    // in feed.ahead
	}{
		"nothing more":             {func(*feed) {}, none, 1},
		"twice":                    {func(f *feed) { f.deleted("a", "u1") }, none, 1},
		"an older version":         {func(f *feed) { _ = f.Update(versioned("a", "u1", "11")) }, none, 1},
		"the last version":         {func(f *feed) { _ = f.Update(versioned("a", "u1", "12")) }, none, 1},
		"an unknown version":       {func(f *feed) { _ = f.Update(versioned("a", "u1", "13")) }, none, 1},
		"an earlier lease":         {func(f *feed) { _ = f.Update(versioned("a", "u0", "11")); _ = f.Delete(versioned("a", "u0", "11")) }, none, 1},
		"a list that has it":       {func(f *feed) { _ = f.Replace([]any{versioned("a", "u1", "12")}, "13") }, none, 1},
		"a list from before it":    {func(f *feed) { _ = f.Replace(nil, "11") }, none, 1},
		"a list from after it":     {func(f *feed) { _ = f.Replace(nil, "13") }, none, 0},
		"the deletion":             {func(f *feed) { _ = f.Delete(versioned("a", "u1", "14")) }, none, 0},
		"a late answer":            {func(f *feed) { f.wrote(versioned("a", "u1", "13")) }, none, 1},
		"the next one, in a watch": {func(f *feed) { _ = f.Update(versioned("a", "u2", "15")) }, "u2", 0},
		"the next one, in a list":  {func(f *feed) { _ = f.Replace([]any{versioned("a", "u2", "15")}, "16") }, "u2", 0},
		"the next one, ours":       {func(f *feed) { f.wrote(versioned("a", "u2", "15")); _ = f.Delete(versioned("a", "u1", "14")) }, "u2", 1},
		"the next one, old answer": {func(f *feed) { _ = f.Update(versioned("a", "u2", "15")); f.deleted("a", "u1") }, "u2", 0},
	} {
		t.Run(name, func(t *testing.T) {
			store := registry.NewStore()
			f := newFeed(registry.SubnetLease, store, func() {})
			_ = f.Replace(nil, "10")
			f.wrote(versioned("a", "u1", "12"))
			f.deleted("a", "u1")
			c.tell(f)
			store.View(func(s *registry.State) {
				if s.Leases["a"].UID != c.uid || len(f.ahead) != c.kept {
					t.Errorf("leases %v, ahead %v, want UID %q and %d", s.Leases, f.ahead, c.uid, c.kept)
				}
			})
		})
	}
}

// What a backup brought back counts, although it is older.
func TestServerThatWentBack(t *testing.T) {
	store := registry.NewStore()
	f := newFeed(registry.SubnetLease, store, func() {})
	_ = f.Replace([]any{versioned("a", "u", "10")}, "10")
	f.wrote(versioned("a", "u", "20"))
	f.wrote(versioned("b", "u", "21"))
	f.wrote(versioned("c", "u", "22"))
	f.deleted("c", "u")
	_ = f.Replace([]any{versioned("a", "u", "5"), versioned("c", "u", "6")}, "7")
	store.View(func(s *registry.State) {
		if len(s.Leases) != 2 || s.Leases["a"].Version != "5" || s.Leases["c"].Version != "6" {
			t.Errorf("leases %v, want a of version 5 and c of version 6", s.Leases)
		}
	})
}

// What says nothing new changes nothing, and what is refused keeps what there
// was.
func TestFeedChangesWhatDiffers(t *testing.T) {
	store := registry.NewStore()
	f := newFeed(registry.Node, store, func() {})
	node := func(version, address string) *item {
		value := cluster.Node{Name: "a", Addresses: []netip.Addr{netip.MustParseAddr(address)}}
		return &item{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}, value: value}
	}
	bad := func(version, why string) *item {
		return &item{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}, err: errors.New(why)}
	}
	want := func(what string, revisions uint64, reason string) {
		t.Helper()
		store.View(func(s *registry.State) {
			if s.Revision != revisions || s.Rejected["Node a"] != reason {
				t.Errorf("%s: revision %d, rejected %v, want %d and %q", what, s.Revision, s.Rejected, revisions, reason)
			}
		})
	}
	_ = f.Replace([]any{node("1", "192.0.2.1")}, "1")
	want("first", 1, "")
	_ = f.Update(node("2", "192.0.2.1"))
	_ = f.Replace([]any{node("3", "192.0.2.1")}, "3")
	want("heartbeats", 1, "")
	_ = f.Update(node("4", "192.0.2.2"))
	want("other address", 2, "")
	_ = f.Update(bad("5", "one\ntwo"))
	want("refused", 2, "one; two")
	_ = f.Replace([]any{bad("6", "three")}, "6")
	want("still refused", 2, "three")
	_ = f.Update(node("7", "192.0.2.2"))
	want("mended", 2, "")
	_ = f.Replace([]any{bad("8", "four")}, "8")
	_ = f.Replace(nil, "9")
	want("gone", 3, "")
	_ = f.Update(bad("10", "five"))
	want("new and refused", 3, "five")
	_ = f.Delete(bad("11", ""))
	want("gone again", 3, "")
}
