// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func inode(t *testing.T, path string) os.FileInfo {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestBinaries(t *testing.T) {
	from := filepath.Join(t.TempDir(), "weft-cni")
	write(t, from, "first", 0o600)
	cases := map[string]func(dir string){
		"no directory":          func(dir string) { _ = os.Remove(dir) },
		"nothing there":         func(string) {},
		"an older plugin":       func(dir string) { write(t, filepath.Join(dir, "weft-cni"), "older", 0o755) },
		"not executable":        func(dir string) { write(t, filepath.Join(dir, "weft-cni"), "first", 0o644) },
		"an IPAM of its own":    func(dir string) { write(t, filepath.Join(dir, "weft-ipam"), "older", 0o755) },
		"an unfinished copy":    func(dir string) { write(t, filepath.Join(dir, ".weft-cni"+newSuffix), "fi", 0o755) },
		"an unfinished link":    func(dir string) { write(t, filepath.Join(dir, ".weft-ipam"+newSuffix), "fi", 0o755) },
		"a link to what is not": func(dir string) { _ = os.Symlink("/nonexistent", filepath.Join(dir, "weft-cni")) },
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bin[1]*")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			prepare(dir)
			if err := Binaries(dir, from, quiet); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"weft-cni", "weft-ipam"}, names(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			cni, ipam := inode(t, filepath.Join(dir, "weft-cni")), inode(t, filepath.Join(dir, "weft-ipam"))
			if !os.SameFile(cni, ipam) || cni.Mode() != 0o755 {
				t.Errorf("weft-cni has mode %v and is weft-ipam: %v; want one file with mode 0755", cni.Mode(), os.SameFile(cni, ipam))
			}
			content, err := os.ReadFile(filepath.Join(dir, "weft-ipam"))
			if err != nil || string(content) != "first" {
				t.Errorf("content %q, %v", content, err)
			}
			if err := Binaries(dir, from, quiet); err != nil {
				t.Fatal(err)
			}
			if again := inode(t, filepath.Join(dir, "weft-cni")); !os.SameFile(cni, again) {
				t.Error("the second time the same plugin was written again")
			}
		})
	}
}

func TestBinariesRefuses(t *testing.T) {
	dir, empty := t.TempDir(), filepath.Join(t.TempDir(), "weft-cni")
	write(t, empty, "", 0o755)
	for from, want := range map[string]string{empty: "it is empty", "/nonexistent/weft-cni": "no such file"} {
		if err := Binaries(dir, from, quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("install %s: %v, want %q", from, err, want)
		}
	}
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("files after a refusal: %v", got)
	}
	if err := os.Mkdir(filepath.Join(dir, "weft-cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, empty, "x", 0o755)
	if err := Binaries(dir, empty, quiet); err == nil || !strings.Contains(err.Error(), "there is a directory of this name") {
		t.Errorf("over a directory: %v", err)
	}
}

// Whoever opens the plugin while several installers replace it gets one of the
// versions, whole.
func TestBinariesAtEveryMoment(t *testing.T) {
	dir := t.TempDir()
	var versions []string
	for i := range 4 {
		versions = append(versions, filepath.Join(t.TempDir(), "weft-cni"))
		write(t, versions[i], strings.Repeat(fmt.Sprint(i), 1<<16), 0o755)
	}
	if err := Binaries(dir, versions[0], quiet); err != nil {
		t.Fatal(err)
	}
	var installers, readers sync.WaitGroup
	done := make(chan struct{})
	for _, name := range []string{"weft-cni", "weft-ipam"} {
		readers.Go(func() {
			for {
				content, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil || len(content) != 1<<16 || bytes.Count(content, content[:1]) != len(content) {
					t.Errorf("%s: %d bytes, %v", name, len(content), err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range versions {
		installers.Go(func() {
			for range 20 {
				if err := Binaries(dir, versions[i], quiet); err != nil {
					t.Error(err)
				}
			}
		})
	}
	installers.Wait()
	close(done)
	readers.Wait()
	if got := names(t, dir); !slices.Equal(got, []string{"weft-cni", "weft-ipam"}) {
		t.Errorf("files: %v", got)
	}
}

func TestWriteConflist(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	path := filepath.Join(dir, "10-weft.conflist")
	for i, step := range []struct {
		content string
		changed bool
	}{{"a", true}, {"a", false}, {"b", true}} {
		changed, err := WriteConflist(path, []byte(step.content))
		if err != nil || changed != step.changed {
			t.Fatalf("step %d: changed %v, %v; want %v", i, changed, err, step.changed)
		}
		if got, _ := os.ReadFile(path); string(got) != step.content {
			t.Fatalf("step %d: content %q, want %q", i, got, step.content)
		}
		if got := names(t, dir); len(got) != 1 {
			t.Fatalf("step %d: files %v", i, got)
		}
	}
	if _, err := WriteConflist(dir, []byte("a")); err == nil {
		t.Error("a directory was overwritten")
	}
	unread := unfinished(path)
	if slices.Contains(extensions, filepath.Ext(unread)) {
		t.Errorf("a runtime would read %s while it is written", unread)
	}
}

func TestRivals(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"05-first.conf", "10-calico.conflist", "10-weft.conflist", "99-loopback.conf", "20-x.json",
		"00-note.txt", "00-old.conflist.bak", ".10-weft.conflist" + newSuffix,
	} {
		write(t, filepath.Join(dir, name), "{}", 0o644)
	}
	if err := os.Mkdir(filepath.Join(dir, "01-directory.conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	earlier, foreign, err := Rivals(filepath.Join(dir, "10-weft.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"05-first.conf", "10-calico.conflist"}, earlier); diff != "" {
		t.Errorf("earlier (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"20-x.json", "99-loopback.conf"}, foreign); diff != "" {
		t.Errorf("foreign (-want +got):\n%s", diff)
	}
	if e, f, err := Rivals("/nonexistent/10-weft.conflist"); e != nil || f != nil || err != nil {
		t.Errorf("no directory: %v, %v, %v", e, f, err)
	}
}

func TestCallers(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"10-weft.conflist": `{"name":"weft","plugins":[{"type":"weft-cni"}]}`,
		"20-thin.conflist": `{"name":"thin","plugins":[{"type":"weft-cni","ipam":{"type":"weft-ipam"}}]}`,
		"30-bridge.conf":   `{"name":"b","type":"bridge","ipam":{"type":"weft-ipam"}}`,
		"40-other.conf":    `{"name":"o","type":"bridge","ipam":{"type":"host-local"}}`,
		"50-broken.conf":   `{"type":"weft-cni"`,
	} {
		write(t, filepath.Join(dir, name), content, 0o644)
	}
	got, err := callers(filepath.Join(dir, "10-weft.conflist"), PluginName, IPAMName)
	if diff := cmp.Diff([]string{"20-thin.conflist", "30-bridge.conf"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
