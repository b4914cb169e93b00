// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/convert"
)

// populate writes leases, one file each, and nodes.
func populate(t testing.TB, path string, nodes, leaseCount int) {
	t.Helper()
	for _, dir := range []string{leases, "nodes"} {
		must(t, os.MkdirAll(filepath.Join(path, dir), 0o755))
	}
	for i := range nodes {
		name := fmt.Sprint("node", i)
		write(t, filepath.Join(path, "nodes", name+".yaml"), nodeText(name, newUID()))
	}
	for i := range leaseCount {
		name, text := leaseText(t, i, fmt.Sprint("node", i/2))
		write(t, filepath.Join(path, leaseFile(name)), text)
	}
}

func leaseText(t testing.TB, i int, node string) (name, text string) {
	t.Helper()
	l := leaseOf(i, node)
	l.UID, l.Version, l.Created = newUID(), "1", time.Now().UnixNano()
	data, err := yaml.Marshal(convert.SubnetLease(l))
	must(t, err)
	return l.Name(), string(data)
}

// A burst overflows the kernel's queue of notifications (16384, of two for each
// file that is written in place), and nothing is lost by that.
func TestBurst(t *testing.T) {
	w := watching(t, t.TempDir())
	must(t, os.Mkdir(filepath.Join(w.path, leases), 0o755))
	const files = 10_000
	populate(t, w.path, 0, files)
	w.eventually("all are there", func(s *registry.State) bool { return len(s.Leases) == files && len(s.Rejected) == 0 })
	// All are written again, half of them removed, a tenth made anew.
	populate(t, w.path, 0, files)
	for i := range files {
		name := filepath.Join(w.path, leaseFile(leaseOf(i, "").Name()))
		switch {
		case i%2 == 0:
			must(t, os.Remove(name))
		case i%5 == 0:
			must(t, os.Rename(name, name+".aside"))
			must(t, os.Rename(name+".aside", name))
		}
	}
	w.eventuallyEquals(scratch(t, w.path))
	w.eventually("half of them are there", func(s *registry.State) bool { return len(s.Leases) == files/2 && len(s.Rejected) == 0 })
}

// BenchmarkColdStart reads 10,000 leases and 5,000 nodes.
func BenchmarkColdStart(b *testing.B) {
	path := b.TempDir()
	populate(b, path, 5_000, 10_000)
	var s snapshot
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		if s = scratch(b, path); len(s.Leases) != 10_000 || len(s.Nodes) != 5_000 || len(s.Rejected) != 0 {
			b.Fatal("not everything was read")
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "values-MiB")
	runtime.KeepAlive(s)
}

// BenchmarkScan looks at 10,000 leases of which none has changed.
func BenchmarkScan(b *testing.B) {
	path := b.TempDir()
	populate(b, path, 0, 10_000)
	f := &follower{Directory: open(b, path), store: registry.NewStore(), index: newIndex(), busy: map[string]struct{}{}, gone: map[string]time.Time{}}
	w, err := newWatch()
	must(b, err)
	defer w.file.Close()
	must(b, f.connect(w))
	for b.Loop() {
		must(b, f.look(w, news{files: map[string]struct{}{}, all: true}))
	}
}

// BenchmarkEvent measures from the renaming of a file to the waking of a
// subscriber, among 10,000 leases.
func BenchmarkEvent(b *testing.B) {
	w := &world{t: b, path: b.TempDir(), store: registry.NewStore()}
	populate(b, w.path, 0, 10_000)
	defer run(b, w.path, time.Hour, w.store)()
	w.eventually("is in sync", func(s *registry.State) bool { return s.Synced })
	sub := w.store.Subscribe(registry.SubnetLease)
	<-sub.C
	sub.Take()
	_, text := leaseText(b, 7, "node7")
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		draft := filepath.Join(w.path, ".draft")
		write(b, draft, text)
		name := filepath.Join(w.path, leaseFile(leaseOf(7, "").Name()))
		b.StartTimer()
		start := time.Now()
		must(b, os.Rename(draft, name))
		for {
			<-sub.C
			if len(sub.Take()) > 0 {
				break
			}
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
