// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the other processes of these tests: with this
// variable set it plays the role that the variable names.
const roleVariable = "WEFT_JOURNAL_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func play(role string, args []string) error {
	switch role {
	case "append":
		return playAppend(args[0], args[1])
	case "own":
		return playOwn(args[0])
	case "nospace":
		return playNoSpace(args[0])
	}
	return fmt.Errorf("no role %q", role)
}

// other returns a command that plays a role.
func other(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// playAppend adds values until it is killed, and says so after each. The churn
// between makes compactions frequent.
func playAppend(dir, name string) error {
	for i := 0; ; i++ {
		s, err := Share(dir, newSet, WithBoot("boot"))
		if err != nil {
			return err
		}
		value := fmt.Sprintf("%s-%d", name, i)
		if err := s.Update(context.Background(), entries("add "+value)); err != nil {
			return err
		}
		fmt.Println(value)
		var churn []string
		for range 20 {
			churn = append(churn, "add churn-"+name, "del churn-"+name)
		}
		if err := s.Update(context.Background(), entries(churn...)); err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
}

// playOwn owns the directory until its standard input ends.
func playOwn(dir string) error {
	s, err := Own(context.Background(), dir, newSet, WithBoot("boot"))
	if err != nil {
		return err
	}
	fmt.Println("owned")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Close()
}

// set is the State of these tests: "add x" and "del x".
type set struct{ has map[string]bool }

func newSet() *set { return &set{map[string]bool{}} }

var errRejected = errors.New("rejected")

func (s *set) Apply(entry string) error {
	verb, value, _ := strings.Cut(entry, " ")
	switch {
	case verb == "add" && !s.has[value]:
		s.has[value] = true
	case verb == "del" && s.has[value]:
		delete(s.has, value)
	default:
		return fmt.Errorf("%s: %w", entry, errRejected)
	}
	return nil
}

func (s *set) Entries(yield func(string) bool) {
	for _, v := range s.values() {
		if !yield("add " + v) {
			return
		}
	}
}

func (s *set) Live() int        { return len(s.has) }
func (s *set) values() []string { return slices.Sorted(maps.Keys(s.has)) }

// entries returns a change that appends these.
func entries(list ...string) func(*set) ([]string, error) {
	return func(*set) ([]string, error) { return list, nil }
}

var boot = WithBoot("boot")

func stateDir(t testing.TB) string { return filepath.Join(t.TempDir(), "weft") }

func journalOf(dir string) string { return filepath.Join(dir, "journal.boot") }

func share(t testing.TB, dir string) *Store[*set] {
	t.Helper()
	s, err := Share(dir, newSet, boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func own(t testing.TB, dir string) *Store[*set] {
	t.Helper()
	s, err := Own(t.Context(), dir, newSet, boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func update(t testing.TB, s *Store[*set], list ...string) {
	t.Helper()
	if err := s.Update(t.Context(), entries(list...)); err != nil {
		t.Fatal(err)
	}
}

// valuesOf returns what a Store sees.
func valuesOf(t testing.TB, s *Store[*set]) (values []string) {
	t.Helper()
	if err := s.View(t.Context(), func(st *set) error { values = st.values(); return nil }); err != nil {
		t.Fatal(err)
	}
	return values
}

func wantValues(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// text returns the content of a journal with these entries.
func text(list ...string) []byte {
	b := appendLine(nil, header("boot"))
	for _, e := range list {
		b = appendLine(b, e)
	}
	return b
}

func writeJournal(t testing.TB, dir string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(journalOf(dir), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
