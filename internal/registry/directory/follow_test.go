// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/registry"
)

func TestEveryWayToChangeAFile(t *testing.T) {
	w := watching(t, t.TempDir())
	file := filepath.Join(w.path, "a.yaml")
	w.place("a.yaml", nodeText("a", "renamed"))
	w.node("a", "renamed")
	w.place("a.yaml", nodeText("a", "renamed over"))
	w.node("a", "renamed over")
	write(t, file, nodeText("a", "in place"))
	w.node("a", "in place")
	w.remove("a.yaml")
	w.node("a", "")
	write(t, file, nodeText("a", "created"))
	w.node("a", "created")
	if err := os.Rename(file, filepath.Join(w.path, "a.yml")); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.node("a", "created")
	if err := os.Rename(filepath.Join(w.path, "a.yml"), filepath.Join(w.path, "a.txt")); err != nil {
		t.Fatal(err)
	}
	w.node("a", "")
	if err := os.Link(filepath.Join(w.path, "a.txt"), filepath.Join(w.path, "b.json")); err != nil {
		t.Fatal(err)
	}
	w.node("a", "created")
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSubdirectories(t *testing.T) {
	w := watching(t, t.TempDir())
	w.mkdir("sub")
	w.place("sub/a.yaml", nodeText("a", "1"))
	w.node("a", "1")
	w.place("sub/a.yaml", nodeText("a", "2"))
	w.node("a", "2")
	// Renamed with what is in it, then out of the way, then back.
	mustRename(t, w.path, "sub", "other")
	w.settle()
	w.place("other/a.yaml", nodeText("a", "3"))
	w.node("a", "3")
	mustRename(t, w.path, "other", ".hidden")
	w.node("a", "")
	w.place(".hidden/a.yaml", nodeText("a", "4"))
	w.settle()
	w.node("a", "")
	mustRename(t, w.path, ".hidden", "sub")
	w.node("a", "4")
	w.remove("sub")
	w.node("a", "")
	w.mkdir("sub")
	w.place("sub/a.yaml", nodeText("a", "5"))
	w.node("a", "5")
	// What lies deeper is somebody else's.
	w.mkdir("sub/deep")
	w.place("sub/deep/b.yaml", nodeText("b", "1"))
	w.settle()
	w.node("b", "")
}

func mustRename(t testing.TB, dir, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		t.Fatal(err)
	}
}

// An in-place writer truncates, writes a part and closes much later. Each part
// here is a valid manifest by itself.
func TestTornWrite(t *testing.T) {
	for name, interval := range map[string]time.Duration{"notified": time.Hour, "scanned": 2 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			w := watchingEvery(t, t.TempDir(), interval)
			w.place("two.yaml", nodeText("a", "1")+"---\n"+nodeText("b", "1"))
			w.node("b", "1")
			f, err := os.Create(filepath.Join(w.path, "two.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			w.settle()
			if _, err := f.WriteString(nodeText("a", "2")); err != nil {
				t.Fatal(err)
			}
			w.settle()
			w.node("a", "1")
			w.node("b", "1")
			if interval < time.Second {
				w.rejected("file two.yaml", true)
			}
			if _, err := f.WriteString("---\n" + nodeText("b", "2")); err != nil {
				t.Fatal(err)
			}
			f.Close()
			w.node("a", "2")
			w.node("b", "2")
			w.rejected("file two.yaml", false)
		})
	}
}

func TestLastGoodVersionStays(t *testing.T) {
	good := nodeText("a", "1") + "---\n" + poolText("p", "10.42.0.0/16")
	for name, c := range map[string]struct{ text, rejected string }{
		"empty":                   {"", "file x.yaml"},
		"comments only":           {"# nothing\n---\n", "file x.yaml"},
		"cut in a key":            {"apiVersion: v1\nki", "file x.yaml"},
		"cut in a name":           {strings.Split(good, "a\n  uid")[0], "file x.yaml"},
		"cut in a field":          {good[:len(good)-17], "IPPool p"},
		"nothing but a List":      {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List}, 5]\n", "file x.yaml"},
		"binary":                  {"\xff\xfe\x00\x01", "file x.yaml"},
		"no kind":                 {"metadata: {name: a}\n", "file x.yaml"},
		"no object":               {"- a\n- b\n", "file x.yaml"},
		"name that is none":       {strings.Replace(good, "name: p", "name: P/..", 1), "file x.yaml"},
		"invalid CIDR":            {strings.Replace(good, "10.42.0.0/16", "10.42.0.0/99", 1), "IPPool p"},
		"unknown field":           {good + "  cidrs: []\n", "IPPool p"},
		"wrong type":              {strings.Replace(good, "10.42.0.0/16", "{}", 1), "IPPool p"},
		"wrong type in a Node":    {strings.Replace(good, "status:", "status: 5\nspec:", 1), "Node a"},
		"repeated key":            {good + "  ipv4: {}\n", "file x.yaml"},
		"misplaced lease":         {good + "---\napiVersion: weft.dev/v1alpha1\nkind: SubnetLease\nmetadata: {name: 10-42-3-0-24}\n", "file x.yaml"},
		"the same twice":          {good + "---\n" + nodeText("a", "2"), "file x.yaml"},
		"more than anybody needs": {good + strings.Repeat("#", sizeLimit), "file x.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			w := watching(t, t.TempDir())
			w.place("x.yaml", good)
			w.node("a", "1")
			w.place("x.yaml", c.text)
			w.rejected(c.rejected, true)
			w.store.View(func(s *registry.State) {
				if len(s.Rejected) != 1 || len(s.Nodes) != 1 || len(s.Pools) != 1 || s.Nodes["a"].UID != "1" || s.Pools["p"].Name != "p" {
					t.Errorf("nodes %v, pools %v, rejected %v", s.Nodes, s.Pools, s.Rejected)
				}
			})
			w.place("x.yaml", nodeText("a", "3"))
			w.eventually("all is well again", func(s *registry.State) bool {
				return s.Nodes["a"].UID == "3" && len(s.Pools) == 0 && len(s.Rejected) == 0
			})
			w.place("x.yaml", c.text)
			w.rejected(c.rejected, true)
			w.remove("x.yaml")
			w.eventually("nothing is left", func(s *registry.State) bool { return len(s.Nodes) == 0 && len(s.Rejected) == 0 })
		})
	}
}

func TestWhatIsNoRegularFile(t *testing.T) {
	w := watching(t, t.TempDir())
	in := func(name string) string { return filepath.Join(w.path, name) }
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.yaml")
	write(t, elsewhere, nodeText("elsewhere", "1"))
	for _, err := range []error{
		unix.Mkfifo(in("fifo.yaml"), 0o644),
		unix.Mknod(in("socket.yaml"), unix.S_IFSOCK|0o644, 0),
		unix.Mknod(in("zero.yaml"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))),
		os.Symlink("loop.yaml", in("loop.yaml")),
		os.Symlink("nowhere.yaml", in("dangling.yaml")),
		os.Symlink(elsewhere, in("linked.yaml")),
		os.Symlink(filepath.Dir(elsewhere), in("linkeddir")),
		os.Truncate(create(t, in("huge.yaml")), 1<<30),
		os.Mkdir(in("dir.yaml"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Truncating notifies nobody whom this listens to.
	write(t, in("touch.yaml"), "")
	create(t, in("huge.yaml.yaml"))
	mustRename(t, w.path, "huge.yaml", "huge2.yaml")
	w.settle()
	want := []string{"fifo", "socket", "zero", "loop", "dangling", "linked", "huge2"}
	for _, name := range want {
		w.rejected("file "+name+".yaml", true)
	}
	w.store.View(func(s *registry.State) {
		if len(s.Rejected) != len(want) || len(s.Nodes) != 0 {
			t.Errorf("nodes %v, rejected %v", s.Nodes, s.Rejected)
		}
	})
	// A scan comes to the same end.
	again := watching(t, w.path)
	if diff := difference(contents(w.store), contents(again.store)); diff != "" {
		t.Error(diff)
	}
	for _, name := range want {
		w.remove(name + ".yaml")
	}
	w.eventually("nothing is rejected", func(s *registry.State) bool { return len(s.Rejected) == 0 })
}

func create(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return name
}

func TestTwoFilesWithTheSameObject(t *testing.T) {
	w := watching(t, t.TempDir())
	w.place("m.yaml", nodeText("a", "m"))
	w.node("a", "m")
	w.place("z.yaml", nodeText("a", "z"))
	w.rejected("Node a", true)
	w.node("a", "m")
	w.place("b.yaml", nodeText("a", "b"))
	w.node("a", "b")
	w.store.View(func(s *registry.State) {
		if reason := s.Rejected["Node a"]; !strings.Contains(reason, "m.yaml") || !strings.Contains(reason, "z.yaml") {
			t.Errorf("rejected because %q", reason)
		}
	})
	w.place("b.yaml", nodeText("other", "b"))
	w.node("a", "m")
	w.node("other", "b")
	w.remove("m.yaml")
	w.node("a", "z")
	w.rejected("Node a", false)
	w.remove("z.yaml")
	w.node("a", "")
}

// Whoever edits a Node's file by removing it and writing it anew must not cost
// the node its leases.
func TestNodeIsSparedForAWhile(t *testing.T) {
	path := t.TempDir()
	place(t, path, "a.yaml", nodeText("a", "1"))
	store := registry.NewStore()
	d := open(t, path)
	d.grace = time.Hour
	t.Cleanup(runs(t, d, store))
	w := &world{t: t, path: path, store: store}
	w.node("a", "1")
	w.remove("a.yaml")
	w.place("later.yaml", nodeText("later", "1"))
	w.node("later", "1")
	w.node("a", "1")
	w.place("a.yaml", nodeText("a", "2"))
	w.node("a", "2")

	brief := open(t, path)
	brief.grace = time.Millisecond
	other := &world{t: t, path: path, store: registry.NewStore()}
	t.Cleanup(runs(t, brief, other.store))
	other.node("a", "2")
	other.remove("a.yaml")
	other.node("a", "")
}

// A first view that lacks a file which is just being written is not complete.
func TestViewIsNotCompleteWhileAFileIsWritten(t *testing.T) {
	path := t.TempDir()
	place(t, path, "a.yaml", nodeText("a", "1"))
	place(t, path, "b.yaml", nodeText("b", "1"))
	writer, err := os.OpenFile(filepath.Join(path, "b.yaml"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	w := &world{t: t, path: path, store: registry.NewStore()}
	t.Cleanup(run(t, path, time.Hour, w.store))
	w.node("a", "1")
	w.store.View(func(s *registry.State) {
		if s.Synced {
			t.Errorf("complete without Node b: %v", s.Nodes)
		}
	})
	must(t, writer.Close())
	w.eventually("is complete", func(s *registry.State) bool { return s.Synced && len(s.Nodes) == 2 })
}

func TestDirectoryGoesAndComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry")
	store := registry.NewStore()
	t.Cleanup(run(t, path, time.Hour, store))
	w := &world{t: t, path: path, store: store}
	w.eventually("is missing", func(s *registry.State) bool { return errors.Is(s.Err, fs.ErrNotExist) && !s.Synced })
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	w.eventually("is there", func(s *registry.State) bool { return s.Synced && s.Err == nil })
	w.place("a.yaml", nodeText("a", "1"))
	w.place("b.yaml", nodeText("b", "1"))
	w.node("a", "1")
	w.node("b", "1")

	gone := func(s *registry.State) bool { return s.Err != nil }
	back := func(s *registry.State) bool { return s.Err == nil }
	keeps := func() {
		t.Helper()
		w.store.View(func(s *registry.State) {
			if !s.Synced || len(s.Nodes) != 2 {
				t.Errorf("synced %v, nodes %v", s.Synced, s.Nodes)
			}
		})
	}
	// Away, changed meanwhile, and back.
	aside := path + ".aside"
	must(t, os.Rename(path, aside))
	w.eventually("is moved away", gone)
	keeps()
	must(t, os.Remove(filepath.Join(aside, "b.yaml")))
	must(t, os.Rename(aside, path))
	w.eventually("is back", back)
	w.node("b", "")
	w.place("b.yaml", nodeText("b", "2"))
	w.node("b", "2")

	// An empty one in its place is a volume that is not mounted.
	must(t, os.Rename(path, aside))
	must(t, os.Mkdir(path, 0o755))
	w.eventually("is empty", func(s *registry.State) bool { return s.Err != nil && strings.Contains(s.Err.Error(), "another one") })
	keeps()
	must(t, os.Remove(path))
	must(t, os.Rename(aside, path))
	w.eventually("is the right one", back)

	// Another one with something in it counts.
	other := path + ".other"
	must(t, os.Mkdir(other, 0o755))
	place(t, other, "a.yaml", nodeText("a", "3"))
	must(t, unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE))
	w.node("a", "3")
	w.node("b", "")
	w.place("a.yaml", nodeText("a", "4"))
	w.node("a", "4")

	// A file in its place, then nothing at all.
	must(t, os.RemoveAll(path))
	write(t, path, "")
	w.eventually("is a file", func(s *registry.State) bool { return errors.Is(s.Err, unix.ENOTDIR) })
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o755))
	w.place("a.yaml", nodeText("a", "5"))
	w.node("a", "5")
	w.eventually("is in contact", back)
}

// A directory above the registry can be renamed without a notification.
func TestParentRenamed(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "parent")
	must(t, os.MkdirAll(filepath.Join(parent, "registry"), 0o755))
	w := watchingEvery(t, filepath.Join(parent, "registry"), 5*time.Millisecond)
	w.place("a.yaml", nodeText("a", "1"))
	w.node("a", "1")
	must(t, os.Rename(parent, parent+".aside"))
	w.eventually("is out of reach", func(s *registry.State) bool { return s.Err != nil })
	w.node("a", "1")
	must(t, os.Rename(parent+".aside", parent))
	w.eventually("is back", func(s *registry.State) bool { return s.Err == nil })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Changes that no notification tells are found by a scan.
func TestScanFindsWhatWasNotTold(t *testing.T) {
	w := watchingEvery(t, t.TempDir(), 5*time.Millisecond)
	w.place("a.yaml", nodeText("a", "1"))
	w.node("a", "1")
	// Through a second name that is not watched, and truncated without opening.
	elsewhere := filepath.Join(t.TempDir(), "a")
	must(t, os.Link(filepath.Join(w.path, "a.yaml"), elsewhere))
	write(t, elsewhere, nodeText("a", "20"))
	w.node("a", "20")
	must(t, unix.Truncate(elsewhere, 0))
	w.rejected("file a.yaml", true)
	w.node("a", "20")
}

// A file of another directory may look the same: a copy keeps size and times,
// and two file systems use the same inode numbers.
func TestAnotherDirectoryIsReadAnew(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "a.yaml")
	write(t, file, nodeText("a", "1"))
	past := time.Unix(1e9, 0)
	must(t, os.Chtimes(file, past, past))
	store := registry.NewStore()
	f := &follower{Directory: open(t, path), store: store, index: newIndex(), busy: map[string]struct{}{}, gone: map[string]time.Time{}}
	connect := func(uid string) {
		t.Helper()
		w, err := newWatch()
		must(t, err)
		defer w.file.Close()
		must(t, f.connect(w))
		if got := contents(store).Nodes["a"].UID; got != uid {
			t.Errorf("uid %q, want %q", got, uid)
		}
	}
	connect("1")
	write(t, file, nodeText("a", "2"))
	must(t, os.Chtimes(file, past, past))
	connect("1") // the same file, for all that stat tells
	f.identity.inode++
	connect("2")
}

// The end of writing is not always told, or told a moment too early: here the
// writer came through a name in a directory that nobody watches.
func TestBusyFileIsTriedAgain(t *testing.T) {
	w := watching(t, t.TempDir())
	elsewhere := filepath.Join(t.TempDir(), "a")
	write(t, elsewhere, nodeText("a", "1"))
	f, err := os.OpenFile(elsewhere, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	must(t, os.Link(elsewhere, filepath.Join(w.path, "a.yaml")))
	w.settle()
	w.node("a", "")
	f.Close()
	w.node("a", "1")
}

func TestLabelsOfOtherNodesAreNotKept(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{"n1", "n2"} {
		write(t, filepath.Join(path, name+".yaml"), "{apiVersion: v1, kind: Node, metadata: {name: "+name+", uid: u-"+name+", labels: {zone: a}}}")
	}
	d, err := Open(path, "n1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, path: path, store: registry.NewStore()}
	t.Cleanup(runs(t, d, w.store))
	w.eventually("both nodes are there, one with its labels", func(s *registry.State) bool {
		return s.Synced && s.Nodes["n1"].Labels["zone"] == "a" && s.Nodes["n2"].UID == "u-n2" && s.Nodes["n2"].Labels == nil
	})
}
