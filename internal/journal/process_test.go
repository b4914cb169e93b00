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
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKilledWriters lets three processes append and compact, and kills each
// after some acknowledged entries, at whatever instruction it is. Nothing that
// was acknowledged may be missing, and the survivors must not wait for locks
// of the dead.
func TestKilledWriters(t *testing.T) {
	dir := stateDir(t)
	var acknowledged []string
	for round := range 6 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				got := appendAndKill(t, dir, fmt.Sprintf("r%dw%d", round, w), 5+7*w+round)
				mu.Lock()
				defer mu.Unlock()
				acknowledged = append(acknowledged, got...)
			})
		}
		wg.Wait()
		state, err := Read(dir, newSet, boot)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		shared := valuesOf(t, share(t, dir))
		if strings.Join(shared, " ") != strings.Join(state.values(), " ") {
			t.Fatalf("round %d: Read and View differ", round)
		}
		for _, value := range acknowledged {
			if !state.has[value] {
				t.Fatalf("round %d: %s was acknowledged and is lost", round, value)
			}
		}
	}
	if len(acknowledged) < 6*3*5 {
		t.Fatalf("only %d acknowledged", len(acknowledged))
	}
}

// appendAndKill runs a writer until it has acknowledged n entries, kills it,
// and returns all that it acknowledged.
func appendAndKill(t *testing.T, dir, name string, n int) (acknowledged []string) {
	cmd := other("append", dir, name)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		acknowledged = append(acknowledged, lines.Text())
		if len(acknowledged) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	if len(acknowledged) < n {
		t.Errorf("%s ended by itself after %d entries", name, len(acknowledged))
	}
	return acknowledged
}

// TestNoSpace runs the checks of playNoSpace in a mount namespace of its own.
func TestNoSpace(t *testing.T) {
	cmd := other("nospace", t.TempDir())
	cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
}

// playNoSpace fills a tiny file system: the entries that do not fit are
// refused, those before stay, and with room again the journal goes on.
func playNoSpace(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 32<<10), 0o600); err != nil {
		return err
	}
	open := map[string]func() (*Store[*set], error){
		"share": func() (*Store[*set], error) { return Share(dir, newSet, boot) },
		"own":   func() (*Store[*set], error) { return Own(context.Background(), dir, newSet, boot) },
	}
	for _, name := range []string{"share", "own"} {
		s, err := open[name]()
		if err != nil {
			return err
		}
		if err := fillUp(s, dir, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.Truncate(ballast, 0); err != nil {
			return err
		}
		if err := s.Update(context.Background(), entries("add room-"+name)); err != nil {
			return fmt.Errorf("%s: with room again: %w", name, err)
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// fillUp appends until an update fails, by a short write or none at all, and
// checks that it changed nothing.
func fillUp(s *Store[*set], dir, name string) error {
	ctx := context.Background()
	for i := range 1000 {
		before, err := os.ReadFile(journalOf(dir))
		if err != nil && i > 0 {
			return err
		}
		one, two := fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("%s-%d-%s", name, i, strings.Repeat("x", 1500))
		err = s.Update(ctx, entries("add "+one, "add "+two))
		if err == nil {
			continue
		}
		after, readErr := os.ReadFile(journalOf(dir))
		if readErr != nil || !bytes.Equal(before, after) {
			return fmt.Errorf("entry %d failed (%w) and the file changed: %w", i, err, readErr)
		}
		return s.View(ctx, func(st *set) error {
			if st.has[one] || st.has[two] || !st.has[fmt.Sprintf("%s-%d", name, i-1)] {
				return errors.New("the state changed by a failed update")
			}
			return nil
		})
	}
	return errors.New("the file system never filled up")
}
