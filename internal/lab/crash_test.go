// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUpKilledAtEachStep: whatever is left, up refuses it, down removes it, and
// then up works.
func TestUpKilledAtEachStep(t *testing.T) {
	f := newFake(t)
	killedAtEachStep(t, f.host, f.spec)
}

func killedAtEachStep(t *testing.T, h Host, s Spec) {
	unchanged := observe(t, h.BinDir)
	for n := 1; ; n++ {
		step := job{Verb: "up", BinDir: h.BinDir, Spec: s}.killAtStep(t, n)
		if step == "" {
			if n < 4 {
				t.Errorf("only %d steps of up were tried", n-1)
			}
			break
		}
		exists, incomplete := (*ExistsError)(nil), (*IncompleteError)(nil)
		if err := h.Up(t.Context(), s); !errors.As(err, &exists) || exists.Complete {
			t.Errorf("killed at %q: up says %v", step, err)
		}
		if _, err := h.Status(t.Context(), s.Name); !errors.As(err, &incomplete) {
			t.Errorf("killed at %q: status says %v", step, err)
		}
		if err := h.Down(t.Context(), s.Name); err != nil {
			t.Errorf("killed at %q: down: %v", step, err)
		}
		unchanged("up killed at " + step)
	}
	for n := 1; ; n++ { // the lab is up now
		if n > 1 {
			if err := h.Up(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.AddPod(t.Context(), s.Name, PodSpec{Name: "a"}); err != nil {
			t.Fatal(err)
		}
		step := job{Verb: "down", BinDir: h.BinDir, Spec: s}.killAtStep(t, n)
		if step == "" {
			break
		}
		if err := h.Down(t.Context(), s.Name); err != nil {
			t.Errorf("down killed at %q: down again: %v", step, err)
		}
		unchanged("down killed at " + step)
	}
	unchanged("at the end")
}

// TestAddKilled: the command and, after it, the plugin's process, which hangs.
func TestAddKilled(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	f.up(t)
	fifo := filepath.Join(f.dir, "ADD.hangs")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _ := job{Verb: "add", BinDir: f.host.BinDir, Spec: f.spec, Pod: PodSpec{Name: "a"}}.start(t)
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits until the plugin reads
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	kill(t, cmd)
	podExists := (*PodExistsError)(nil)
	if _, err := f.host.AddPod(t.Context(), "fake", PodSpec{Name: "a"}); !errors.As(err, &podExists) || podExists.Complete {
		t.Errorf("add after the killed one: %v", err)
	}
	s, err := f.host.Status(t.Context(), "fake")
	if err != nil || s.Healthy() || len(s.Pods) != 1 {
		t.Errorf("status: %+v, %v", s, err)
	}
	if err := f.host.DeletePod(t.Context(), "fake", "a"); err != nil {
		t.Errorf("delete of the half made pod: %v", err)
	}
	if err := f.host.Down(t.Context(), "fake"); err != nil {
		t.Errorf("down: %v", err)
	}
	unchanged("after down")
}

// TestHalfMadeDirectories: what no killed command leaves but a hand might.
func TestHalfMadeDirectories(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	l := f.host.layout("fake")
	for name, make := range map[string]func() error{
		"empty": func() error { return os.MkdirAll(string(l), 0o755) },
		"namespace a file": func() error {
			return errors.Join(os.MkdirAll(l.netnsDir(), 0o755), os.WriteFile(l.netns("node1"), nil, 0o644))
		},
		"two layers of mounts": func() error {
			return errors.Join(os.MkdirAll(l.netnsDir(), 0o755), newNetns(l.netns("node1")),
				unix.Mount(l.netns("node1"), l.netns("node1"), "", unix.MS_BIND, ""))
		},
		"garbage for a spec": func() error {
			return errors.Join(os.MkdirAll(string(l), 0o755), os.WriteFile(l.spec(), []byte("{"), 0o644), os.WriteFile(l.ready(), nil, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := make(); err != nil {
				t.Fatal(err)
			}
			if err := f.host.Down(t.Context(), "fake"); err != nil {
				t.Errorf("down: %v", err)
			}
			unchanged("after down")
			if err := f.host.Down(t.Context(), "fake"); err != nil {
				t.Errorf("down again: %v", err)
			}
		})
	}
}

// TestGarbageInRecords: what cannot be read is reported, and goes all the same.
func TestGarbageInRecords(t *testing.T) {
	f := newFake(t)
	unchanged := observe(t, f.host.BinDir)
	f.up(t)
	l := f.host.layout("fake")
	if err := errors.Join(
		os.WriteFile(l.pod("a"), []byte("garbage"), 0o644),
		os.WriteFile(l.agentPID("node1"), []byte("-1 0"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	wantError(t, f.host.Down(t.Context(), "fake"), l.pod("a"), l.agentPID("node1"))
	unchanged("after down")
}
