// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestShareAppendsAndOthersSee(t *testing.T) {
	dir := stateDir(t)
	a, b := share(t, dir), share(t, dir)
	update(t, a, "add x", "add y")
	wantValues(t, valuesOf(t, b), "x", "y")
	update(t, b, "del x", "add z")
	wantValues(t, valuesOf(t, a), "y", "z")
	read, err := Read(dir, newSet, boot)
	if err != nil {
		t.Fatal(err)
	}
	wantValues(t, read.values(), "y", "z")
	if got, want := content(t, journalOf(dir)), text("add x", "add y", "del x", "add z"); !bytes.Equal(got, want) {
		t.Fatalf("file:\n%swant:\n%s", got, want)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, journalOf(dir): 0o600, filepath.Join(dir, "lock"): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v; want mode %v", path, st.Mode(), err, mode)
		}
	}
}

func TestFormatIsFixed(t *testing.T) {
	// The check value of CRC-32 as every catalogue of checksums gives it.
	if line := string(appendLine(nil, "123456789")); line != "cbf43926 123456789\n" {
		t.Fatalf("got %q", line)
	}
	// Every version of Weft must lock the same byte for a key.
	if at := keyByte("podnet/aaaa/eth0"); at != keyByte("podnet/aaaa/eth0") || at < byteKeys || at == keyByte("podnet/aaaa/eth1") {
		t.Fatalf("byte %d", at)
	}
	if at := keyByte(""); at != byteKeys+14695981039346656037%keySpace {
		t.Fatalf("byte of the empty key: %d", at)
	}
}

func TestFailedUpdateChangesNothing(t *testing.T) {
	for name, open := range map[string]func(testing.TB, string) *Store[*set]{"shared": share, "owned": own} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			s := open(t, dir)
			update(t, s, "add x")
			before := content(t, journalOf(dir))
			mine := errors.New("no")
			var badEntry *EntryError
			for what, try := range map[string]struct {
				change func(*set) ([]string, error)
				as     func(error) bool
			}{
				"second entry rejected": {entries("add y", "add x"), func(err error) bool { return errors.Is(err, errRejected) }},
				"change fails":          {func(*set) ([]string, error) { return []string{"add y"}, mine }, func(err error) bool { return errors.Is(err, mine) }},
				"newline":               {entries("add y", "add a\nb"), func(err error) bool { return errors.As(err, &badEntry) }},
				"empty entry":           {entries("add y", ""), func(err error) bool { return errors.As(err, &badEntry) }},
			} {
				if err := s.Update(t.Context(), try.change); !try.as(err) {
					t.Errorf("%s: got %v", what, err)
				}
				wantValues(t, valuesOf(t, s), "x")
				if !bytes.Equal(before, content(t, journalOf(dir))) {
					t.Errorf("%s: the file changed", what)
				}
			}
			update(t, s, "add y")
			wantValues(t, valuesOf(t, s), "x", "y")
		})
	}
}

func TestFirstUpdateRejected(t *testing.T) {
	s := share(t, stateDir(t))
	if err := s.Update(t.Context(), entries("add x", "add x")); !errors.Is(err, errRejected) {
		t.Fatalf("got %v", err)
	}
	wantValues(t, valuesOf(t, s))
	update(t, s, "add x")
	wantValues(t, valuesOf(t, s), "x")
}

func TestUpdateWithoutEntriesWritesNothing(t *testing.T) {
	dir := stateDir(t)
	update(t, share(t, dir))
	if _, err := os.Stat(journalOf(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
}

func TestOwnerExcludesOthers(t *testing.T) {
	dir := stateDir(t)
	sharer := share(t, dir)
	update(t, sharer, "add x")
	if pid, alive := OwnerAlive(dir); alive {
		t.Fatalf("owner %d before there is one", pid)
	}
	owner := own(t, dir)
	if !owner.Owned() || sharer.Owned() {
		t.Fatal("Owned is wrong")
	}
	if pid, alive := OwnerAlive(dir); !alive || pid != os.Getpid() {
		t.Fatalf("got %d, %v", pid, alive)
	}
	var owned *OwnedError
	if _, err := Own(t.Context(), dir, newSet, boot); !errors.As(err, &owned) || owned.PID != os.Getpid() || owned.Dir != dir {
		t.Fatalf("second owner: %v", err)
	}
	if err := sharer.View(t.Context(), func(*set) error { return nil }); !errors.As(err, &owned) {
		t.Fatalf("sharer's view: %v", err)
	}
	if err := sharer.Update(t.Context(), entries("add y")); !errors.As(err, &owned) {
		t.Fatalf("sharer's update: %v", err)
	}
	if _, err := Replace(t.Context(), dir, newSet(), boot); !errors.As(err, &owned) {
		t.Fatalf("repair: %v", err)
	}
	update(t, owner, "add z")
	if read, err := Read(dir, newSet, boot); err != nil || len(read.has) != 2 {
		t.Fatalf("a reader needs no lock: %v", err)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	if err := owner.View(t.Context(), func(*set) error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
	if _, alive := OwnerAlive(dir); alive {
		t.Fatal("the owner is alive after Close")
	}
	wantValues(t, valuesOf(t, sharer), "x", "z")
}

func TestOwnerDiesByKill(t *testing.T) {
	dir := stateDir(t)
	cmd := other("own", dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "owned\n" {
		t.Fatalf("%q, %v", line, err)
	}
	var owned *OwnedError
	if _, err := Own(t.Context(), dir, newSet, boot); !errors.As(err, &owned) || owned.PID != cmd.Process.Pid {
		t.Fatalf("got %v, want process %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as it should be
	if pid, alive := OwnerAlive(dir); alive {
		t.Fatalf("a dead process owns: %d", pid)
	}
	update(t, own(t, dir), "add x")
}

func TestWaitingEndsWithContext(t *testing.T) {
	dir := stateDir(t)
	a, b := share(t, dir), share(t, dir)
	err := a.View(t.Context(), func(*set) error {
		for _, s := range []*Store[*set]{a, b} { // the mutex of this Store, the lock of the other
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			if err := s.Update(ctx, entries("add x")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := Own(ctx, dir, newSet, boot); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("own: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	update(t, own(t, dir), "add x")
}

func TestManyGoroutines(t *testing.T) {
	dir := stateDir(t)
	common := share(t, dir)
	var wg sync.WaitGroup
	const workers, each = 8, 25
	for w := range workers {
		wg.Go(func() {
			s := common
			if w%2 == 0 {
				s = share(t, dir)
			}
			for i := range each {
				if err := s.Update(t.Context(), entries(fmt.Sprintf("add %d-%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(valuesOf(t, common)); got != workers*each {
		t.Fatalf("%d values, want %d", got, workers*each)
	}
}

func TestLockKeyExcludes(t *testing.T) {
	dir := stateDir(t)
	shared, owner := share(t, dir), own(t, dir)
	stores := []*Store[*set]{shared, share(t, dir), owner}
	inside := 0 // guarded by the key; the race detector watches it too
	var guard sync.Mutex
	var wg sync.WaitGroup
	for w := range 9 {
		wg.Go(func() {
			for range 20 {
				unlock, err := stores[w%3].LockKey(t.Context(), "net/c/eth0")
				if err != nil {
					t.Error(err)
					return
				}
				guard.Lock()
				inside++
				if inside != 1 {
					t.Errorf("%d inside", inside)
				}
				guard.Unlock()
				guard.Lock()
				inside--
				guard.Unlock()
				unlock()
				unlock() // harmless
			}
		})
	}
	wg.Wait()
	for _, s := range stores {
		if len(s.keys.lines) != 0 {
			t.Errorf("%d keys are remembered after their last use", len(s.keys.lines))
		}
	}
}

func TestLockKeyWaits(t *testing.T) {
	dir := stateDir(t)
	a, b := share(t, dir), share(t, dir)
	unlock, err := a.LockKey(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store[*set]{a, b} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := s.LockKey(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "k") {
			t.Errorf("got %v", err)
		}
		cancel()
		other, err := s.LockKey(t.Context(), "another")
		if err != nil {
			t.Fatal(err)
		}
		other()
	}
	update(t, b, "add x") // a key does not hold up transactions
	unlock()
	again, err := b.LockKey(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestBootChange(t *testing.T) {
	dir := stateDir(t)
	update(t, share(t, dir), "add x")
	next, err := Own(t.Context(), dir, newSet, WithBoot("next"))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	wantValues(t, valuesOf(t, next))
	update(t, next, "add y")
	if err := os.WriteFile(journalOf(dir)+".corrupt-1", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stale, err := next.Stale()
	if err != nil || len(stale) != 2 || stale[0] != (StaleFile{journalOf(dir), "boot", true}) || stale[1].Journal {
		t.Fatalf("got %+v, %v", stale, err)
	}
	old, bad, err := ReadStale(stale[0], newSet)
	if err != nil || len(bad) != 0 {
		t.Fatalf("%v, %v", bad, err)
	}
	wantValues(t, old.values(), "x")
	for range 2 {
		for _, f := range stale {
			if err := RemoveStale(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if stale, err = Stale(dir, WithBoot("next")); err != nil || len(stale) != 0 {
		t.Fatalf("got %+v, %v", stale, err)
	}
	wantValues(t, valuesOf(t, next), "y")
	if stale, err := Stale(filepath.Join(dir, "missing")); err != nil || stale != nil {
		t.Fatalf("got %+v, %v", stale, err)
	}
}

func TestKernelBootID(t *testing.T) {
	dir := stateDir(t)
	s, err := Share(dir, newSet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	update(t, s, "add x")
	id := strings.TrimSpace(string(content(t, "/proc/sys/kernel/random/boot_id")))
	if got := string(content(t, filepath.Join(dir, "journal."+id))); !strings.Contains(got, " boot="+id+"\n") {
		t.Fatalf("got %q", got)
	}
	if _, err := Share(dir, newSet, WithBoot("../evil")); err == nil {
		t.Fatal("a boot id that leaves the directory was accepted")
	}
}

func TestUnfitDirectories(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	for _, err := range []error{
		os.WriteFile(at("file"), nil, 0o600), os.Mkdir(at("open"), 0o700), os.Chmod(at("open"), 0o777),
		os.Mkdir(at("real"), 0o700), os.Symlink(at("real"), at("link")),
		os.Mkdir(at("lockdir"), 0o700), os.Symlink("/dev/null", at("lockdir/lock")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var unfit *DirError
	for _, name := range []string{"file", "open", "link"} {
		if _, err := Share(at(name), newSet, boot); !errors.As(err, &unfit) || unfit.Dir != at(name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Share(at("file/below"), newSet, boot); err == nil {
		t.Error("a directory below a file was accepted")
	}
	if _, err := Share(at("lockdir"), newSet, boot); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a lock that is a symbolic link: %v", err)
	}
	if s, err := Read(at("missing"), newSet, boot); err != nil || s.Live() != 0 {
		t.Errorf("read of nothing: %v", err)
	}
	if _, err := os.Stat(at("missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error("reading made the directory")
	}
	update(t, share(t, at("a/b/c")), "add x")
}

func TestOwnerRestoresRemovedFile(t *testing.T) {
	dir := stateDir(t)
	s := own(t, dir)
	update(t, s, "add x")
	if err := os.Remove(journalOf(dir)); err != nil {
		t.Fatal(err)
	}
	update(t, s, "add y")
	if got, want := content(t, journalOf(dir)), text("add x", "add y"); !bytes.Equal(got, want) {
		t.Fatalf("got:\n%s", got)
	}
}

// An owner whose directory is gone holds locks that nobody else can find.
func TestOwnerNoticesThatItsDirectoryIsGone(t *testing.T) {
	dir := stateDir(t)
	s := own(t, dir)
	update(t, s, "add a")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"removed", "replaced"} {
		var lost *LostError
		if err := s.View(context.Background(), func(*set) error { return nil }); !errors.As(err, &lost) || lost.Dir != dir {
			t.Errorf("directory %s: %v", what, err)
		}
		if what == "removed" {
			own(t, dir) // makes it anew
		}
	}
}
