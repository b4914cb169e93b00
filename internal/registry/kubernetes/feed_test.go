// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"net/netip"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// past is what one kind's history has at a version: objects by name.
type past struct {
	changed string // name
	deleted bool
	state   map[string]string // version by name
}

// history returns one with an entry for each version; 0 is empty.
func history(t *rapid.T) []past {
	all := []past{{state: map[string]string{}}}
	for v := 1; v <= rapid.IntRange(1, 30).Draw(t, "changes"); v++ {
		before := all[v-1].state
		now := past{changed: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), state: map[string]string{}}
		for name, version := range before {
			now.state[name] = version
		}
		if _, there := before[now.changed]; there && rapid.IntRange(0, 2).Draw(t, "deletes") == 0 {
			now.deleted = true
			delete(now.state, now.changed)
		} else {
			now.state[now.changed] = strconv.Itoa(v)
		}
		all = append(all, now)
	}
	return all
}

func versioned(name, version string) *item {
	return &item{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}, value: cluster.Lease{Version: version}}
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
		v := rapid.IntRange(0, p.written).Draw(p.T, "answer")
		if h := p.all[v]; v > 0 && !h.deleted {
			p.feed.wrote(versioned(h.changed, strconv.Itoa(v)))
		}
	case 3: // everything is read again
		p.seen = rapid.IntRange(p.seen, p.written).Draw(p.T, "list")
		p.list(p.seen)
	default: // the watch goes on
		p.watch()
	}
	p.check()
}

func (p *told) list(v int) {
	var list []any
	for name, version := range p.all[v].state {
		list = append(list, versioned(name, version))
	}
	_ = p.feed.Replace(list, strconv.Itoa(v))
}

func (p *told) watch() {
	if p.seen >= p.written {
		return
	}
	p.seen++
	i := versioned(p.all[p.seen].changed, strconv.Itoa(p.seen))
	if p.all[p.seen].deleted {
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
			switch floor := p.floor[name]; {
			case there && version < floor:
				p.Fatalf("%s goes back from %d to %d", name, floor, version)
			case there:
				p.floor[name] = version
			case p.all[floor].state[name] != "":
				p.floor[name] = p.deletion(name, floor)
			}
		}
	})
}

// deletion returns when an object that was there went away.
func (p *told) deletion(name string, from int) int {
	for v := from; v <= p.written; v++ {
		if p.all[v].state[name] == "" {
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
		got := map[string]string{}
		p.feed.store.View(func(s *registry.State) {
			for name, l := range s.Leases {
				got[name] = l.Version
			}
		})
		if diff := cmp.Diff(p.all[p.written].state, got); diff != "" {
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
	f.wrote(versioned("early", "9")) // before anything was read
	_ = f.Replace(nil, "10")
	f.wrote(versioned("a", "12"))
	f.wrote(versioned("a", "11"))
	_ = f.Update(versioned("a", "11"))
	store.View(func(s *registry.State) {
		if len(s.Leases) != 1 || s.Leases["a"].Version != "12" {
			t.Errorf("leases %v, want a of version 12", s.Leases)
		}
	})
}

// What a backup brought back counts, although it is older.
func TestServerThatWentBack(t *testing.T) {
	store := registry.NewStore()
	f := newFeed(registry.SubnetLease, store, func() {})
	_ = f.Replace([]any{versioned("a", "10")}, "10")
	f.wrote(versioned("a", "20"))
	f.wrote(versioned("b", "21"))
	_ = f.Replace([]any{versioned("a", "5")}, "7")
	store.View(func(s *registry.State) {
		if len(s.Leases) != 1 || s.Leases["a"].Version != "5" {
			t.Errorf("leases %v, want a of version 5", s.Leases)
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
	want("gone again", 4, "")
}
