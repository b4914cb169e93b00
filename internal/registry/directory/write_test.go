// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

var _ registry.Cluster = (*Directory)(nil)

func open(t testing.TB, path string) *Directory {
	t.Helper()
	d, err := Open(path, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// lease waits until the Store has a lease that fulfils a condition.
func (w *world) lease(name, what string, holds func(cluster.Lease) bool) (l cluster.Lease) {
	w.t.Helper()
	w.eventually("lease "+name+" "+what, func(s *registry.State) bool {
		var there bool
		l, there = s.Leases[name]
		return there && holds(l)
	})
	return l
}

func TestLifeOfALease(t *testing.T) {
	w, ctx := watching(t, t.TempDir()), t.Context()
	d := open(t, w.path)
	l := leaseOf(1, "node1")
	must(t, d.Create(ctx, l))
	got := w.lease(l.Name(), "is there", func(cluster.Lease) bool { return true })
	if got.UID == "" || got.Version == "" || time.Since(time.Unix(0, got.Created)) > time.Minute {
		t.Errorf("created %+v", got)
	}
	l.UID, l.Version, l.Created = got.UID, got.Version, got.Created
	if diff := cmp.Diff(l, got, cmpopts.EquateComparable(l.Subnet, l.Subnet.Addr())); diff != "" {
		t.Errorf("wanted (-), found (+):\n%s", diff)
	}
	if err := d.Create(ctx, leaseOf(1, "node2")); !errors.Is(err, registry.ErrExists) {
		t.Errorf("second Create: %v", err)
	}

	changed := got
	changed.VTEP.Port = 8472
	must(t, d.Replace(ctx, changed))
	now := w.lease(l.Name(), "has another port", func(l cluster.Lease) bool { return l.VTEP.Port == 8472 })
	if now.UID != got.UID || now.Version == got.Version || now.Created != got.Created {
		t.Errorf("replaced %+v by %+v", got, now)
	}
	if err := d.Replace(ctx, changed); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Replace of an old version: %v", err)
	}
	stranger := now
	stranger.UID = "other"
	if err := d.Replace(ctx, stranger); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Replace with another UID: %v", err)
	}
	if err := d.Delete(ctx, stranger); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Delete with another UID: %v", err)
	}
	must(t, d.Delete(ctx, got)) // of any version
	w.eventually("lease is gone", func(s *registry.State) bool { return len(s.Leases) == 0 })
	must(t, d.Delete(ctx, got))
	if err := d.Replace(ctx, now); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Replace of none: %v", err)
	}
	must(t, d.Create(ctx, l))
	again := w.lease(l.Name(), "is there again", func(cluster.Lease) bool { return true })
	if again.UID == got.UID {
		t.Error("two leases with the same UID")
	}
}

// A lease that cannot be read is nobody's to change.
func TestWriteOverGarbage(t *testing.T) {
	path, ctx := t.TempDir(), t.Context()
	d, l := open(t, path), leaseOf(1, "node1")
	must(t, os.Mkdir(filepath.Join(path, leases), 0o755))
	for _, text := range []string{"", "{", nodeText("a", "1"),
		"apiVersion: weft.dev/v1alpha1\nkind: SubnetLease\nmetadata: {name: 10-42-1-0-24}\nspec: {subnet: 10.42.2.0/24}\n"} {
		write(t, filepath.Join(path, leaseFile(l.Name())), text)
		if err := d.Create(ctx, l); !errors.Is(err, registry.ErrExists) {
			t.Errorf("Create over %q: %v", text, err)
		}
		for verb, err := range map[string]error{"Replace": d.Replace(ctx, l), "Delete": d.Delete(ctx, l)} {
			if err == nil || errors.Is(err, registry.ErrConflict) {
				t.Errorf("%s over %q: %v", verb, text, err)
			}
		}
		if data, err := os.ReadFile(filepath.Join(path, leaseFile(l.Name()))); err != nil || string(data) != text {
			t.Errorf("%q became %q, %v", text, data, err)
		}
	}
}

func TestWriteWithoutDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	if err := open(t, path).Create(t.Context(), leaseOf(1, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Create: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory was made: its volume may not be mounted")
	}
}

// A writer that hangs holds up the others only as long as they want.
func TestWaitForLock(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	must(t, d.Create(t.Context(), leaseOf(1, "a")))
	lock, err := os.Open(filepath.Join(path, lockFile))
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := d.Create(ctx, leaseOf(2, "a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Create: %v", err)
	}
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	must(t, d.Create(t.Context(), leaseOf(2, "a")))
}

func TestOneCreatorWins(t *testing.T) {
	path := t.TempDir()
	const creators, rounds = 50, 5
	for round := range rounds {
		var wins atomic.Int32
		var winner atomic.Value
		var done sync.WaitGroup
		for i := range creators {
			d, node := open(t, path), fmt.Sprint("node", i)
			done.Go(func() {
				switch err := d.Create(t.Context(), leaseOf(round, node)); {
				case err == nil:
					wins.Add(1)
					winner.Store(node)
				case !errors.Is(err, registry.ErrExists):
					t.Error(err)
				}
			})
		}
		done.Wait()
		held, err := open(t, path).current(leaseOf(round, "").Name())
		if err != nil || wins.Load() != 1 || held.Node != winner.Load() {
			t.Errorf("%d won, last %v; it is held by %q, %v", wins.Load(), winner.Load(), held.Node, err)
		}
	}
}

// Each of many writers moves a counter (the VNI) on by reading, comparing and
// swapping: not one step is lost.
func TestCompareAndSwap(t *testing.T) {
	path, ctx := t.TempDir(), t.Context()
	first := leaseOf(1, "a")
	must(t, open(t, path).Create(ctx, first))
	const writers, steps = 8, 20
	var done sync.WaitGroup
	for range writers {
		d := open(t, path)
		done.Go(func() {
			for moved := 0; moved < steps; {
				l, err := d.current(first.Name())
				if err != nil {
					t.Error(err)
					return
				}
				l.VTEP.VNI++
				switch err := d.Replace(ctx, l); {
				case err == nil:
					moved++
				case !errors.Is(err, registry.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	if l, err := open(t, path).current(first.Name()); err != nil || l.VTEP.VNI != 1+writers*steps {
		t.Errorf("VNI %d, want %d; %v", l.VTEP.VNI, 1+writers*steps, err)
	}
}

const crashEnv = "WEFT_TEST_CRASH_DIRECTORY"

// writeUntilKilled is a process that does nothing but write.
func writeUntilKilled(path string) {
	d, err := Open(path, "", slog.New(slog.DiscardHandler))
	ctx, l := context.Background(), leaseOf(1, "crash")
	fmt.Println("started")
	for err == nil {
		if err = d.Create(ctx, l); errors.Is(err, registry.ErrExists) {
			err = nil
		}
		for range 3 {
			if now, e := d.current(l.Name()); e == nil && err == nil {
				err = d.Replace(ctx, now)
			}
		}
		if now, e := d.current(l.Name()); e == nil && err == nil {
			err = d.Delete(ctx, now)
		}
	}
	fmt.Println(err)
}

// Killed at any moment, a writer leaves a whole lease or none, and no lock.
func TestKilledWriter(t *testing.T) {
	path := t.TempDir()
	w := watching(t, path)
	name := leaseOf(1, "").Name()
	for round := range 40 {
		c := exec.Command("/proc/self/exe", "-test.run=^$")
		c.Env = append(os.Environ(), crashEnv+"="+path)
		out, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "started" {
			t.Fatalf("child said %q", lines.Text())
		}
		// Not to wait for something, but to kill it in all places.
		<-time.After(time.Duration(round) * 173 * time.Microsecond)
		must(t, c.Process.Kill())
		if lines.Scan() {
			t.Errorf("child said %q", lines.Text())
		}
		c.Wait()
		held, err := open(t, path).current(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		// The next writer goes on, over whatever was left.
		if err != nil {
			must(t, open(t, path).Create(t.Context(), leaseOf(1, "heir")))
		} else {
			must(t, open(t, path).Replace(t.Context(), held))
			must(t, open(t, path).Delete(t.Context(), held))
		}
		for _, dir := range []string{path, filepath.Join(path, leases)} {
			entries, err := os.ReadDir(dir)
			must(t, err)
			for _, e := range entries {
				if n := e.Name(); n != leases && n != ownDir && n != name+".yaml" {
					t.Errorf("%s was left in %s", n, dir)
				}
			}
		}
	}
	w.settle()
	w.eventually("nothing was ever rejected for good", func(s *registry.State) bool { return len(s.Rejected) == 0 })
}
