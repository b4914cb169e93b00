// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
)

func churn(t testing.TB, s *Store[*set], times int) {
	t.Helper()
	for range times {
		update(t, s, "add churn", "del churn")
	}
}

func linesOf(t testing.TB, dir string) int {
	return bytes.Count(content(t, journalOf(dir)), []byte("\n"))
}

func TestCompaction(t *testing.T) {
	for name, open := range map[string]func(testing.TB, string) *Store[*set]{"shared": share, "owned": own} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			s := open(t, dir)
			for i := range 10 {
				update(t, s, fmt.Sprintf("add %d", i))
			}
			want := valuesOf(t, s)
			longest := 0
			for range 400 {
				churn(t, s, 1)
				longest = max(longest, linesOf(t, dir))
			}
			if most := compactFactor*11 + compactSlack + 2; longest > most || longest < compactSlack {
				t.Fatalf("the file grew to %d lines, want at most %d", longest, most)
			}
			wantValues(t, valuesOf(t, s), want...)
			read, err := Read(dir, newSet, boot)
			if err != nil {
				t.Fatal(err)
			}
			wantValues(t, read.values(), want...)
			if err := s.CompactionErr(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(journalOf(dir) + newSuffix); !os.IsNotExist(err) {
				t.Fatalf("compaction left its file: %v", err)
			}
		})
	}
}

// TestCompactionIsNoticed: one Store compacts, another that has the old file
// open goes on in the new one.
func TestCompactionIsNoticed(t *testing.T) {
	dir := stateDir(t)
	a, b := share(t, dir), share(t, dir)
	update(t, b, "add b")
	before, _, err := identify(journalOf(dir))
	if err != nil {
		t.Fatal(err)
	}
	churn(t, a, 200)
	if after, _, err := identify(journalOf(dir)); err != nil || after.sameFile(before) {
		t.Fatalf("there was no compaction: %v", err)
	}
	update(t, b, "add bb")
	wantValues(t, valuesOf(t, a), "b", "bb")
}

// TestKilledCompaction: what it left is neither read nor in the way.
func TestKilledCompaction(t *testing.T) {
	dir := stateDir(t)
	s := share(t, dir)
	update(t, s, "add a")
	if err := os.WriteFile(journalOf(dir)+newSuffix, []byte("half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	churn(t, s, 200)
	wantValues(t, valuesOf(t, share(t, dir)), "a")
}

// TestFailedCompaction: the update it follows is written all the same.
func TestFailedCompaction(t *testing.T) {
	dir := stateDir(t)
	s := share(t, dir)
	blocker := journalOf(dir) + newSuffix
	update(t, s, "add a")
	if err := os.MkdirAll(blocker+"/x", 0o700); err != nil {
		t.Fatal(err)
	}
	churn(t, s, 300)
	if s.CompactionErr() == nil {
		t.Fatal("compaction should have failed")
	}
	wantValues(t, valuesOf(t, share(t, dir)), "a")
	if err := os.RemoveAll(blocker); err != nil {
		t.Fatal(err)
	}
	churn(t, s, 300)
	if err := s.CompactionErr(); err != nil {
		t.Fatalf("it was not tried again: %v", err)
	}
	wantValues(t, valuesOf(t, share(t, dir)), "a")
}

// TestReadDuringWrites: a reader without a lock sees every state whole.
func TestReadDuringWrites(t *testing.T) {
	dir := stateDir(t)
	update(t, share(t, dir), "add a")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		s := share(t, dir)
		for {
			select {
			case <-stop:
				return
			default:
				churn(t, s, 1)
			}
		}
	})
	for range 500 {
		st, err := Read(dir, newSet, boot)
		if err != nil {
			t.Error(err)
			break
		}
		if !st.has["a"] || len(st.has) > 2 {
			t.Errorf("read %q", st.values())
		}
	}
	close(stop)
	wg.Wait()
}
