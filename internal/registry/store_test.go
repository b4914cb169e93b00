// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
)

func node(name, uid string) Change {
	return Change{Key{Node, name}, cluster.Node{Name: name, UID: uid}}
}

func awake(s *Subscription) bool {
	select {
	case <-s.C:
		return true
	default:
		return false
	}
}

func TestSubscription(t *testing.T) {
	s := NewStore()
	s.Apply(node("b", "1"), node("a", "1"), Change{Key{IPPool, "p"}, cluster.Pool{Name: "p"}})
	sub := s.Subscribe(IPPool, Node)
	take := func(want ...Key) {
		t.Helper()
		if got := sub.Take(); !slices.Equal(got, want) {
			t.Errorf("took %v, want %v", got, want)
		}
	}
	if !awake(sub) || awake(sub) {
		t.Error("want to be awake once, for what there is already")
	}
	take(Key{IPPool, "p"}, Key{Node, "a"}, Key{Node, "b"})
	take()

	// Several changes are one.
	s.Apply(node("a", "2"))
	s.Apply(node("a", "3"), Change{Key: Key{Node, "b"}})
	if !awake(sub) || awake(sub) {
		t.Error("want to be awake once, for two changes")
	}
	take(Key{Node, "a"}, Key{Node, "b"})
	s.View(func(state *State) {
		if len(state.Nodes) != 1 || state.Nodes["a"].UID != "3" || state.Revision != 3 {
			t.Errorf("nodes %v, revision %d", state.Nodes, state.Revision)
		}
	})

	// Other kinds change nothing, and neither does nothing.
	s.Apply(Change{Key{Namespace, "n"}, cluster.Namespace{Name: "n"}})
	s.Apply()
	take()
}

func TestEveryKind(t *testing.T) {
	objects := map[Kind]any{
		Node: cluster.Node{Name: "x"}, Namespace: cluster.Namespace{Name: "x"}, Pod: cluster.Pod{Name: "x"},
		IPPool: cluster.Pool{Name: "x"}, SubnetLease: cluster.Lease{Node: "x"},
		AddressClaim: cluster.Claim{Name: "x"},
	}
	s := NewStore()
	count := func() (n int) {
		s.View(func(state *State) {
			n = len(state.Nodes) + len(state.Namespaces) + len(state.Pods) + len(state.Pools) + len(state.Leases) + len(state.Claims)
		})
		return n
	}
	for kind, object := range objects {
		s.Apply(Change{Key{kind, "x"}, object})
		if keys := s.Subscribe(kind).Take(); len(keys) != 1 || keys[0] != (Key{kind, "x"}) {
			t.Errorf("%s: %v", kind, keys)
		}
	}
	if count() != len(objects) {
		t.Errorf("%d objects, want %d", count(), len(objects))
	}
	for kind := range objects {
		s.Apply(Change{Key: Key{kind, "x"}})
	}
	if count() != 0 {
		t.Errorf("%d objects are left", count())
	}
}

func TestWrongKindPanics(t *testing.T) {
	for _, c := range []Change{{Key{Node, "x"}, cluster.Pool{}}, {Key{"Deployment", "x"}, cluster.Node{}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was taken", c)
				}
			}()
			NewStore().Apply(c)
		}()
	}
}

func TestContact(t *testing.T) {
	s := NewStore()
	sub := s.Subscribe(Node)
	awake(sub)
	at := func(i int64) time.Time { return time.Unix(i, 0) }
	want := func(wake, synced bool, err error, since int64) {
		t.Helper()
		s.View(func(state *State) {
			if got := awake(sub); got != wake || state.Synced != synced || !errors.Is(state.Err, err) || !state.Since.Equal(at(since)) {
				t.Errorf("awake %v, synced %v, %v, since %d", got, state.Synced, state.Err, state.Since.Unix())
			}
		})
	}
	lost, differently := errors.New("lost"), errors.New("lost differently")
	s.Unreachable(lost, at(1))
	want(true, false, lost, 1)
	s.Unreachable(differently, at(2))
	want(false, false, differently, 1)
	s.Synced(at(3))
	want(true, true, nil, 3)
	s.Synced(at(4))
	want(false, true, nil, 3)
	s.Unreachable(lost, at(5))
	want(true, true, lost, 5)
	s.Synced(at(6))
	want(true, true, nil, 6)
}

func TestReject(t *testing.T) {
	s := NewStore()
	s.Reject("Node a", "one")
	s.Reject("Node a", "two")
	s.Reject("file b", "three")
	s.Reject("file b", "")
	s.Reject("file c", "")
	s.View(func(state *State) {
		if diff := cmp.Diff(map[string]string{"Node a": "two"}, state.Rejected); diff != "" {
			t.Error(diff)
		}
	})
}

// Who applies what it takes, when it has time, ends with the same objects.
func TestFollower(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := NewStore()
		sub, mirror := s.Subscribe(Node), map[string]cluster.Node{}
		follow := func() {
			for _, k := range sub.Take() {
				s.View(func(state *State) {
					if n, there := state.Nodes[k.Name]; there {
						mirror[k.Name] = n
					} else {
						delete(mirror, k.Name)
					}
				})
			}
		}
		for i := range rapid.IntRange(0, 40).Draw(rt, "steps") {
			c := node(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "node"), fmt.Sprint(i))
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				follow()
			case 1:
				s.Apply(Change{Key: c.Key})
			default:
				s.Apply(c, node("a", fmt.Sprint(i)))
			}
		}
		follow()
		s.View(func(state *State) {
			if diff := cmp.Diff(state.Nodes, mirror); diff != "" {
				rt.Fatalf("store (-), follower (+):\n%s", diff)
			}
		})
	})
}

// Followers that wait for C miss nothing, whoever writes at the same time.
func TestConcurrentUse(t *testing.T) {
	const writers, followers, changes = 4, 3, 300
	s := NewStore()
	var writing, following sync.WaitGroup
	for range followers {
		sub := s.Subscribe(Node)
		following.Go(func() {
			mirror, deadline := map[string]cluster.Node{}, time.After(10*time.Second)
			for seen := 0; seen < writers; {
				select {
				case <-sub.C:
				case <-deadline:
					t.Errorf("saw the end of %d writers, want %d", seen, writers)
					return
				}
				for _, k := range sub.Take() {
					s.View(func(state *State) { mirror[k.Name] = state.Nodes[k.Name] })
				}
				seen = 0
				for n := range maps.Values(mirror) {
					if n.UID == fmt.Sprint(changes) {
						seen++
					}
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range changes {
				s.Apply(node(fmt.Sprint(w), fmt.Sprint(i+1)))
				s.Reject("Node x", fmt.Sprint(i%2))
				s.Synced(time.Unix(int64(i), 0))
			}
		})
	}
	writing.Wait()
	following.Wait()
	s.View(func(state *State) {
		if state.Revision != writers*changes {
			t.Errorf("revision %d, want %d", state.Revision, writers*changes)
		}
	})
}
