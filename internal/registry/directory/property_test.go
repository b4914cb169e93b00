// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// snapshot is what a Store holds.
type snapshot struct {
	Nodes    map[string]cluster.Node
	Pools    map[string]cluster.Pool
	Leases   map[string]cluster.Lease
	Pods     map[string]cluster.Pod
	Rejected map[string]string
}

func contents(store *registry.Store) (s snapshot) {
	store.View(func(state *registry.State) {
		s = snapshot{maps.Clone(state.Nodes), maps.Clone(state.Pools), maps.Clone(state.Leases),
			maps.Clone(state.Pods), maps.Clone(state.Rejected)}
	})
	return s
}

func difference(a, b snapshot) string {
	return cmp.Diff(a, b, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty())
}

// scratch reads a directory from nothing.
func scratch(t failer, path string) snapshot {
	w := &world{t: t, path: path, store: registry.NewStore()}
	defer run(t, path, time.Hour, w.store)()
	w.eventually("is in sync", func(s *registry.State) bool { return s.Synced })
	return contents(w.store)
}

func (w *world) eventuallyEquals(want snapshot) {
	w.t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for diff := difference(contents(w.store), want); diff != ""; diff = difference(contents(w.store), want) {
		if time.Now().After(deadline) {
			w.t.Fatalf("followed (-), read (+):\n%s", diff)
		}
		<-tick.C
	}
}

// Whatever happens to the files, following them ends where reading them from
// nothing does, once no file is bad any more.
func TestFollowingEqualsReading(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, path: t.TempDir(), store: registry.NewStore()}
		defer run(t, w.path, time.Hour, w.store)()
		w.eventually("is in sync", func(s *registry.State) bool { return s.Synced })
		ops := rapid.SliceOfN(rapid.Custom(drawOp), 1, 40).Draw(rt, "operations")
		bad := map[string]bool{}
		for _, o := range ops {
			o.apply(w.path, bad)
		}
		for name := range bad {
			os.Remove(filepath.Join(w.path, name))
		}
		want := scratch(rt, w.path)
		w.eventuallyEquals(want)
	})
}

// op is something that happens to a file or a subdirectory.
type op struct {
	Verb, Name, Other, Text string
	Bad                     bool
}

var (
	anyDir  = rapid.SampledFrom([]string{"", "", "s/", "t/"})
	anyFile = rapid.Custom(func(t *rapid.T) string {
		return anyDir.Draw(t, "dir") + rapid.SampledFrom([]string{"a.yaml", "b.yml", "c.json", "d.txt"}).Draw(t, "file")
	})
	anyText = rapid.Custom(func(t *rapid.T) string {
		documents := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			name := rapid.SampledFrom([]string{"one", "two", "three"}).Draw(t, "object")
			if rapid.Bool().Draw(t, "pool") {
				return poolText(name, rapid.SampledFrom([]string{"10.42.0.0/16", "10.43.0.0/16", "bad"}).Draw(t, "cidr"))
			}
			return nodeText(name, rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "uid"))
		}), 1, 3).Draw(t, "documents")
		return strings.Join(documents, "---\n")
	})
)

func drawOp(t *rapid.T) op {
	o := op{
		Verb: rapid.SampledFrom([]string{"write", "write", "place", "place", "garbage", "remove", "rename", "link",
			"mkdir", "rmdir", "mvdir"}).Draw(t, "verb"),
		Name: anyFile.Draw(t, "name"), Other: anyFile.Draw(t, "other"),
	}
	switch o.Verb {
	case "write", "place":
		o.Text = anyText.Draw(t, "text")
	case "garbage":
		o.Text = rapid.SampledFrom([]string{"", "{", "kind: Node", "\xff"}).Draw(t, "text")
	}
	// A file that holds an invalid or a repeated object is bad as well.
	o.Bad = o.Verb == "garbage" || strings.Contains(o.Text, "bad")
	return o
}

// apply does it if it can be done, and notes which files are bad.
func (o op) apply(path string, bad map[string]bool) {
	in := func(name string) string { return filepath.Join(path, name) }
	switch o.Verb {
	case "write", "garbage":
		if os.WriteFile(in(o.Name), []byte(o.Text), 0o644) == nil {
			bad[o.Name] = o.Bad
		}
	case "place":
		draft := in(".draft")
		if os.WriteFile(draft, []byte(o.Text), 0o644) == nil && os.Rename(draft, in(o.Name)) == nil {
			bad[o.Name] = o.Bad
		}
	case "remove":
		if os.Remove(in(o.Name)) == nil {
			delete(bad, o.Name)
		}
	case "rename":
		if os.Rename(in(o.Name), in(o.Other)) == nil {
			bad[o.Other] = bad[o.Name]
		}
	case "link":
		// A hard link shares later writes in place without a notification.
		if data, err := os.ReadFile(in(o.Name)); err == nil && os.WriteFile(in(".draft"), data, 0o644) == nil {
			if os.Link(in(".draft"), in(o.Other)) == nil {
				bad[o.Other] = bad[o.Name]
			}
			os.Remove(in(".draft"))
		}
	case "mkdir":
		os.Mkdir(in("s"), 0o755)
	case "rmdir":
		os.RemoveAll(in("t"))
	case "mvdir":
		if os.Rename(in("s"), in("t")) == nil {
			moved := map[string]bool{}
			for name, is := range bad {
				if rest, in := strings.CutPrefix(name, "s/"); in {
					moved["t/"+rest] = is
				} else if !strings.HasPrefix(name, "t/") {
					moved[name] = is
				}
			}
			clear(bad)
			maps.Copy(bad, moved)
		}
	}
	maps.DeleteFunc(bad, func(_ string, is bool) bool { return !is })
}

// The index against the rule itself: of the files that hold an object, the
// first by name.
func TestIndex(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	keys := rapid.SliceOfDistinct(rapid.SampledFrom([]registry.Key{
		{Kind: registry.Node, Name: "k"}, {Kind: registry.Node, Name: "l"}, {Kind: registry.Node, Name: "m"},
	}), rapid.ID)
	rapid.Check(t, func(rt *rapid.T) {
		x, store := newIndex(), registry.NewStore()
		files := map[string]manifest{}
		take := func(name string) {
			if m, there := files[name]; there {
				x.put(name, stat{}, m)
			} else {
				x.remove(name)
			}
		}
		for step := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			for range rapid.IntRange(1, 3).Draw(rt, "in one pass") {
				name := names.Draw(rt, "file")
				if rapid.IntRange(0, 3).Draw(rt, "remove") == 0 {
					delete(files, name)
				} else {
					m := manifest{documents: 1}
					for _, k := range keys.Draw(rt, "keys") {
						m.entries = append(m.entries, entry{key: k, value: cluster.Node{Name: k.Name, UID: fmt.Sprint(name, step)}})
					}
					files[name] = m
				}
				take(name)
			}
			for again := x.takeAgain(); len(again) > 0; again = x.takeAgain() {
				for _, name := range again {
					take(name)
				}
			}
			x.tell(store.Apply, store.Reject)
			if diff := difference(contents(store), ruling(files)); diff != "" {
				rt.Fatalf("index (-), rule (+):\n%s", diff)
			}
			if len(files) != len(x.files) || len(x.verdicts)+len(x.changes) != 0 {
				rt.Fatalf("%d files indexed, want %d; verdicts %v, changes %v", len(x.files), len(files), x.verdicts, x.changes)
			}
		}
	})
}

func ruling(files map[string]manifest) snapshot {
	s := snapshot{Nodes: map[string]cluster.Node{}, Rejected: map[string]string{}}
	first := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d"} {
		for _, e := range files[name].entries {
			if _, taken := s.Nodes[e.key.Name]; !taken {
				s.Nodes[e.key.Name] = e.value.(cluster.Node)
				first[e.key.Name] = name
				continue
			}
			reason := fmt.Sprintf("file %s: it is in %s already, which comes first", name, first[e.key.Name])
			if before := s.Rejected[e.key.String()]; before != "" {
				reason = before + "; " + reason
			}
			s.Rejected[e.key.String()] = reason
		}
	}
	return s
}
