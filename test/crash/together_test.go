// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"weft.dev/weft/test/crash/node"
)

// TestKillWhileDeletingTogether kills the agent while it removes several
// interfaces at once, which it does when DELs come faster than the kernel
// removes. The next start removes the rest.
func TestKillWhileDeletingTogether(t *testing.T) {
	t.Parallel()
	st := newStage(t, scenario{mode: thick, verb: "DEL", agent: true, beside: true})
	st.survey()
	for _, name := range []string{"kernel-group-delete:before", "kernel-group-delete:marked", "kernel-group-delete:after"} {
		// Whether a batch forms is up to the scheduler; with eight at once it
		// nearly always does. What may not happen is that it never does.
		if !node.Until(node.Limit, func() bool { return st.killTogether(name) }) {
			t.Fatalf("no batch of removals formed")
		}
	}
	fmt.Println("crash: three agents killed while they removed interfaces together")
}

// killTogether deletes eight pods at once and reports whether the agent died.
func (st *stage) killTogether(name string) bool {
	st.Helper()
	st.startAgent()
	var pods []pod
	for i := range 8 {
		st.runs++
		p := st.newPod(fmt.Sprintf("c%d-%d", st.runs, i))
		st.ok(st.call("ADD", p))
		pods = append(pods, p)
	}
	st.must(os.WriteFile(st.victimFile(), []byte(point{name, 1}.String()), 0o600))
	outcomes := make([]node.Outcome, len(pods))
	var calls sync.WaitGroup
	for i, p := range pods {
		calls.Go(func() {
			outcomes[i], _ = st.n.Call(node.Call{ // an error is an outcome that is not OK
				Verb: "DEL", ContainerID: p.key.ContainerID, Netns: p.sandbox.Path, Ifname: p.key.Ifname, Config: st.config(st.n, p.key.ContainerID, true),
			})
		})
	}
	calls.Wait()
	for _, o := range outcomes {
		st.ok(o)
	}
	died := node.Until(node.Limit, func() bool {
		left := false
		for _, p := range pods {
			_, found, err := st.n.Record(p.key)
			st.must(err)
			left = left || found
		}
		return !left || !st.agent.Alive()
	}) && !st.agent.Alive()
	_ = os.Remove(st.victimFile()) // there is none if the agent died
	st.restored(pods[0])
	for _, p := range pods {
		st.unlocked(p)
		st.must(p.sandbox.Delete())
	}
	return died
}
