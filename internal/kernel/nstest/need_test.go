// SPDX-License-Identifier: Apache-2.0

package nstest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// recorder stands in for a test and notes how it ended.
type recorder struct {
	testing.TB
	name            string
	skipped, failed bool
}

func (r *recorder) Name() string          { return r.name }
func (r *recorder) Helper()               {}
func (r *recorder) Skip(...any)           { r.skipped = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

func TestJudgeWritesTheLedger(t *testing.T) {
	ledger := filepath.Join(t.TempDir(), "ledger")
	t.Setenv("WEFT_TEST_LEDGER", ledger)
	lacks := errors.New("operation not supported")
	for _, c := range []struct {
		name            string
		required        bool
		missing         error
		skipped, failed bool
		line            string
	}{
		{"TestA", true, nil, false, false, "LEDGER ran TestA: kernel has ipv6 nat"},
		{"TestB", false, nil, false, false, "LEDGER ran TestB: kernel has ipv6 nat"},
		{"TestC", false, lacks, true, false, "LEDGER skipped TestC: kernel lacks ipv6 nat"},
		{"TestD", true, lacks, false, true, "LEDGER failed TestD: kernel lacks ipv6 nat"},
	} {
		r := &recorder{TB: t, name: c.name}
		judge(r, "ipv6 nat", c.required, c.missing)
		if r.skipped != c.skipped || r.failed != c.failed {
			t.Errorf("%s: skipped %v failed %v, want %v %v", c.name, r.skipped, r.failed, c.skipped, c.failed)
		}
		b, err := os.ReadFile(ledger)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		if got := lines[len(lines)-1]; got != c.line {
			t.Errorf("%s: ledger says %q, want %q", c.name, got, c.line)
		}
	}
}

// TestRequiredFeatures is the whole list at once: what must be there, is.
func TestRequiredFeatures(t *testing.T) {
	for _, name := range Features() {
		t.Run(name, func(t *testing.T) { Need(t, name) })
	}
}

func TestUnknownFeatureFails(t *testing.T) {
	r := &recorder{TB: t, name: "TestE"}
	Need(r, "no such thing")
	if !r.failed {
		t.Error("an unknown feature was accepted")
	}
}

func TestNamespacesAreSeparate(t *testing.T) {
	inode := func() (st unix.Stat_t) {
		if err := unix.Stat(threadNetns, &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, a, b := inode(), New(t), New(t)
	seen := map[uint64]string{home.Ino: "home"}
	for name, n := range map[string]*NS{"a": a, "b": b} {
		n.Do(func() {
			in := inode().Ino
			if other, dup := seen[in]; dup {
				t.Errorf("%s is in the namespace of %s", name, other)
			}
			seen[in] = name
		})
		if inode().Ino != home.Ino {
			t.Fatalf("the thread did not come back from %s", name)
		}
	}
	a.Do(func() {
		outer := inode().Ino
		b.Do(func() {
			if inode().Ino == outer {
				t.Error("a nested Do stayed outside")
			}
		})
		if inode().Ino != outer {
			t.Error("a nested Do came back to the wrong namespace")
		}
	})
}
