// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		writeUntilKilled(path)
	}
	goleak.VerifyTestMain(m)
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is a directory of manifests and the Store that follows it.
type world struct {
	t     failer
	path  string
	store *registry.Store
}

// watching starts to follow a directory, with scans so rare that only
// notifications count.
func watching(t testing.TB, path string) *world { return watchingEvery(t, path, time.Hour) }

func watchingEvery(t testing.TB, path string, interval time.Duration) *world {
	t.Helper()
	w := &world{t: t, path: path, store: registry.NewStore()}
	t.Cleanup(run(t, path, interval, w.store))
	w.eventually("is in sync", func(s *registry.State) bool { return s.Synced || s.Err != nil })
	return w
}

// run follows a directory until stop is called.
func run(t failer, path string, interval time.Duration, into *registry.Store) (stop func()) {
	t.Helper()
	d, err := Open(path, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d.interval, d.grace = interval, 0
	return runs(t, d, into)
}

func runs(t failer, d *Directory, into *registry.Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, into) }()
	return func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run does not end")
		}
	}
}

func (w *world) eventually(what string, holds func(*registry.State) bool) {
	w.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		ok := false
		w.store.View(func(s *registry.State) { ok = holds(s) })
		if ok {
			return
		}
		if time.Now().After(deadline) {
			w.store.View(func(s *registry.State) {
				w.t.Fatalf("never: %s\nnodes %v\nleases %v\nrejected %v\nsynced %v, error %v", what,
					slices.Sorted(maps.Keys(s.Nodes)), slices.Sorted(maps.Keys(s.Leases)), s.Rejected, s.Synced, s.Err)
			})
		}
		<-tick.C
	}
}

// settle returns when everything that has happened before is in the Store: the
// kernel keeps notifications in their order.
func (w *world) settle() {
	w.t.Helper()
	marker := filepath.Join(w.path, "zz-marker.yaml")
	uid := fmt.Sprint(time.Now().UnixNano())
	w.place("zz-marker.yaml", nodeText("zz-marker", uid))
	w.eventually("the marker is there", func(s *registry.State) bool { return s.Nodes["zz-marker"].UID == uid })
	if err := os.Remove(marker); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the marker is gone", func(s *registry.State) bool { _, there := s.Nodes["zz-marker"]; return !there })
}

func (w *world) node(name, uid string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("node %s has the uid %q", name, uid), func(s *registry.State) bool {
		n, there := s.Nodes[name]
		return there == (uid != "") && n.UID == uid
	})
}

func (w *world) rejected(object string, is bool) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("rejected %s: %v", object, is), func(s *registry.State) bool { return (s.Rejected[object] != "") == is })
}

// place puts a file into place by rename.
func (w *world) place(name, text string) { place(w.t, w.path, name, text) }

func place(t failer, dir, name, text string) {
	t.Helper()
	draft := filepath.Join(dir, ".draft-of-a-test")
	if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.path, name)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) mkdir(name string) {
	w.t.Helper()
	if err := os.Mkdir(filepath.Join(w.path, name), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

func nodeText(name, uid string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata:
  name: %s
  uid: %q
  labels:
    kubernetes.io/hostname: %[1]s
    kubernetes.io/os: linux
    kubernetes.io/arch: amd64
status:
  addresses:
  - type: InternalIP
    address: 198.18.1.12
  - type: Hostname
    address: %[1]s
`, name, uid)
}

func poolText(name, cidr string) string {
	return fmt.Sprintf("apiVersion: weft.dev/v1alpha1\nkind: IPPool\nmetadata:\n  name: %s\nspec:\n  ipv4:\n    cidr: %s\n", name, cidr)
}

// leaseOf returns the lease of the i-th block of a pool.
func leaseOf(i int, node string) cluster.Lease {
	return cluster.Lease{
		Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(42 + i>>8), byte(i), 0}), 24),
		Pool:   "default", Node: node, NodeUID: "0b2f8a4e-55a5-4b0e-9b3a-0d6f0d6d8a10",
		Addresses: []netip.Addr{netip.MustParseAddr("198.18.1.12"), netip.MustParseAddr("fd00:198:18:1::12")},
		VTEP:      cluster.VTEP{MAC: attach.MAC{2, 0, 0, 0, 0, 1}, VNI: 1, Port: 4789},
	}
}
