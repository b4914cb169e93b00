// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"weft.dev/weft/test/crash/node"
)

// TestPointsAreComplete watches calls through the kernel's eyes: before the
// first change that outlives the process, between any two, and after the last
// one there is a point. A new operation without one fails here, instead of
// never being tried.
func TestPointsAreComplete(t *testing.T) {
	for _, c := range []struct {
		scenario
		effects int // at least
	}{
		{scenario{mode: thin, verb: "ADD"}, 9},                // intent, forwarding twice, gateways, masquerade, three of the pair, completion
		{scenario{mode: thin, verb: "ADD", beside: true}, 5},  // intent, gateways, three of the pair, completion
		{scenario{mode: thin, verb: "ADD", compact: true}, 8}, // and the rewritten journal
		{scenario{mode: thin, verb: "DEL", beside: true}, 3},  // releasing, the pair, released
		{scenario{mode: ipamOnly, verb: "ADD"}, 1},
		{scenario{mode: ipamOnly, verb: "DEL"}, 2},
	} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			st := newStage(t, c.scenario)
			st.survey()
			steps := st.traced(st.begin())
			if bare := uncovered(steps); len(bare) > 0 {
				t.Errorf("no point before or after %v, in %v", bare, steps)
			}
			if n := len(effectsOf(steps)); n < c.effects {
				t.Errorf("%d changes were seen, want at least %d: %v", n, c.effects, steps)
			}
			t.Logf("%v", steps)
		})
	}
}

// uncovered returns the changes that lack a point between them and the one
// before, or after the last one.
func uncovered(steps []step) []step {
	var bare []step
	covered := false
	for i, s := range steps {
		if s.effect != "" && (!covered || i == len(steps)-1) {
			bare = append(bare, s)
		}
		covered = s.point != ""
	}
	return bare
}

func effectsOf(steps []step) []step {
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return s.effect == "" })
}

// A judge that cannot say no is none: any change whose points are taken away is
// found.
func TestMissingPointsAreFound(t *testing.T) {
	st := newStage(t, scenario{mode: thin, verb: "ADD"})
	st.survey()
	steps := st.traced(st.begin())
	for i := range steps {
		if steps[i].effect == "" {
			continue
		}
		from := i
		for from > 0 && steps[from-1].point != "" {
			from--
		}
		if bare := uncovered(slices.Delete(slices.Clone(steps), from, i)); !slices.Contains(bare, steps[i]) {
			t.Errorf("without a point before %s nothing is found", steps[i])
		}
	}
	if effects := effectsOf(steps); len(uncovered(effects)) != len(effects) {
		t.Errorf("without any point only %v is found of %v", uncovered(effects), effects)
	}
}

// traced serves the call under the tracer.
func (st *stage) traced(p pod) []step {
	st.Helper()
	binary := "weft-cni"
	if st.mode == ipamOnly {
		binary = "weft-ipam"
	}
	stdin := filepath.Join(st.n.Dir, "stdin")
	st.must(os.WriteFile(stdin, []byte(st.config(st.n, p.key.ContainerID, true)), 0o600))
	in, err := os.Open(stdin)
	st.must(err)
	defer in.Close()
	out, err := os.Create(filepath.Join(st.n.Dir, "stdout"))
	st.must(err)
	defer out.Close()
	cmd := exec.Command(filepath.Join(node.Bin(), binary))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	cmd.Env = []string{
		"CNI_COMMAND=" + st.verb, "CNI_CONTAINERID=" + p.key.ContainerID, "CNI_NETNS=" + p.sandbox.Path,
		"CNI_IFNAME=" + p.key.Ifname, "CNI_PATH=" + st.n.CNIPath, "WEFT_CRASH_TRACE=" + st.pluginTrace,
	}
	tr := &tracer{stateDir: st.n.StateDir, trace: st.pluginTrace, begun: map[int]int{}}
	if err := st.n.Do(func() error { return tr.run(cmd) }); err != nil {
		said, _ := os.ReadFile(out.Name()) // for the message only
		st.Fatal(fmt.Errorf("%s under the tracer: %w: %s", st.verb, err, said))
	}
	return tr.done()
}
