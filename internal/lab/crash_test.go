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

// TestNodeCommandsKilledAtEachStep: whatever is left, status tells it, and
// remove removes it.
func TestNodeCommandsKilledAtEachStep(t *testing.T) {
	f := newFakeCluster(t)
	nodeCommandsKilled(t, f.host, f.spec, func(...string) {})
}

// nodeCommandsKilled is for a lab of two nodes. use is to prove that pods on
// these nodes work; it leaves none.
func nodeCommandsKilled(t *testing.T, h Host, s Spec, use func(nodes ...string)) {
	unchanged := observe(t, h.BinDir)
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	use("node1", "node2") // leaves directories
	without := observe(t, h.BinDir)
	j := job{BinDir: h.BinDir, Spec: s, Node: "node3"}
	t.Run("add", func(t *testing.T) { addKilled(t, h, j, without) })
	use("node1", "node2", "node3")
	t.Run("remove", func(t *testing.T) { removeKilled(t, h, j, without) })
	t.Run("start", func(t *testing.T) { startKilled(t, h, j) })
	use("node1", "node2")
	if err := h.Down(t.Context(), s.Name); err != nil {
		t.Errorf("down: %v", err)
	}
	unchanged("after down")
}

// killedAt runs the job's verb until its n-th step; "" where it has no such
// step any more.
func (j job) killedAt(t *testing.T, verb string, n int) string {
	t.Helper()
	j.Verb = verb
	step := j.killAtStep(t, n)
	if step == "" && n < 3 {
		t.Errorf("only %d steps of %s were tried", n-1, verb)
	}
	return step
}

// third returns the lab's third node, if there is one.
func third(t *testing.T, h Host, lab string) (NodeStatus, bool) {
	t.Helper()
	s, err := h.Status(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Nodes) < 3 {
		return NodeStatus{}, false
	}
	return s.Nodes[2], true
}

func addKilled(t *testing.T, h Host, j job, without func(string)) {
	name := j.Spec.Name
	for n := 1; ; n++ {
		step := j.killedAt(t, "node add", n)
		node, there := third(t, h, name)
		if step == "" {
			if !there || node.Network != OK {
				t.Errorf("an add that was not killed: %+v", node)
			}
			return
		}
		if there {
			want(t, node.Network, "half made", "weft lab node remove node3")
			half := (*NodeHalfMadeError)(nil)
			if _, err := h.AddPod(t.Context(), name, PodSpec{Name: "a", Node: "node3"}); !errors.As(err, &half) {
				t.Errorf("killed at %q: pod on a node that is half made: %v", step, err)
			}
			if err := h.StartNode(t.Context(), name, "node3"); !errors.As(err, &half) {
				t.Errorf("killed at %q: start of a node that is half made: %v", step, err)
			}
			if err := h.RemoveNode(name, "node3"); err != nil {
				t.Errorf("killed at %q: remove: %v", step, err)
			}
		}
		without("add killed at " + step)
	}
}

func removeKilled(t *testing.T, h Host, j job, without func(string)) {
	name := j.Spec.Name
	for n := 1; ; n++ {
		if _, err := h.AddPod(t.Context(), name, PodSpec{Name: "a", Node: "node3"}); err != nil {
			t.Fatal(err)
		}
		step := j.killedAt(t, "node remove", n)
		if node, there := third(t, h, name); there {
			want(t, node.Network, "half made")
			if err := h.RemoveNode(name, "node3"); err != nil {
				t.Errorf("killed at %q: remove again: %v", step, err)
			}
		}
		without("remove killed at " + step)
		if step == "" {
			return
		}
		if _, err := h.AddNode(t.Context(), name, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// startKilled: there is one agent in the end, started by whichever command.
func startKilled(t *testing.T, h Host, j job) {
	j.Node = "node2"
	for n := 1; ; n++ {
		if err := h.StopNode(j.Spec.Name, j.Node); err != nil {
			t.Fatal(err)
		}
		step := j.killedAt(t, "node start", n)
		if step == "" {
			return
		}
		if err := h.StartNode(t.Context(), j.Spec.Name, j.Node); err != nil {
			t.Errorf("killed at %q: start again: %v", step, err)
		}
		s, err := h.Status(t.Context(), j.Spec.Name)
		if err != nil || !s.Healthy() {
			t.Errorf("killed at %q: %+v, %v", step, s.Nodes, err)
		}
	}
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
		os.WriteFile(l.record("node1"), []byte("garbage"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	_, err := f.host.Status(t.Context(), "fake")
	wantError(t, err, l.record("node1"))
	wantError(t, f.host.Down(t.Context(), "fake"), l.pod("a"))
	unchanged("after down")
}
