// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// web is a pod in the state after so many steps: created and scheduled, with
// an address, ready.
func web(uid string, state int) cluster.Pod {
	// In a synctest bubble the clock starts at a whole second.
	p := cluster.Pod{Namespace: "default", Name: "web-0", UID: uid, Node: "n1", Created: birth, Scheduled: birth + 1e9}
	if state > 0 {
		p.Addresses = []netip.Addr{netip.MustParseAddr("10.42.0.7")}
	}
	if state > 1 {
		p.Ready = birth + 2e9
	}
	return p
}

// birth is some seconds after the beginning of a bubble's time.
var birth = time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC).UnixNano()

// at waits until that time after birth.
func at(d time.Duration) time.Time {
	time.Sleep(time.Until(time.Unix(0, birth).Add(d)))
	return time.Now()
}

const ms = time.Millisecond

// told writes timelines as "NAME+MILLISECONDS".
func told(list []report.Timeline) string {
	var out strings.Builder
	for _, tl := range list {
		fmt.Fprintf(&out, "%s %s %s %s: %s:", tl.Verb, tl.Pod, tl.UID, tl.ContainerID, tl.Result)
		for _, m := range tl.Marks {
			whole := ""
			if m.Whole {
				whole = "~"
			}
			fmt.Fprintf(&out, " %s%s+%d", whole, m.Name, m.At.Sub(time.Unix(0, birth)).Milliseconds())
		}
		out.WriteString("\n")
	}
	return out.String()
}

func begin(r *Recorder, verb, uid, container string) *Call {
	return r.Begin(Start{
		Verb: verb, Pod: "default/web-0", UID: uid, ContainerID: container,
		Shim: time.Now().Add(-2 * ms), Received: time.Now(),
	})
}

// add is an ADD that takes 6 ms, beginning with the shim.
func add(r *Recorder, uid, container string, err error) {
	time.Sleep(2 * ms)
	c := begin(r, "ADD", uid, container)
	time.Sleep(ms)
	c.Mark(PodKnown)
	c.Mark("reserved")
	if err == nil {
		time.Sleep(2 * ms)
		c.Mark("attached")
	}
	time.Sleep(ms)
	c.End(err)
}

func TestLifeOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(8, nil)
		defer r.Close()
		r.Pod(web("u1", 0), at(1010*ms))
		at(1100 * ms)
		add(r, "u1", "box1", errors.New("no address"))
		at(1500 * ms)
		add(r, "u1", "box2", nil)
		r.Pod(web("u1", 1), at(2000*ms))
		r.Pod(web("u1", 2), at(2500*ms))
		r.Pod(web("u1", 2), at(2600*ms)) // nothing new
		at(9000 * ms)
		c := begin(r, "DEL", "u1", "box2")
		time.Sleep(ms)
		c.End(nil)
		r.Gone("default/web-0", at(9500*ms))
		const want = `ADD default/web-0 u1 box1: no address: ~created+0 ~scheduled+1000 watched+1010 shim started+1100 received+1102 pod known+1103 reserved+1103 answered+1104
ADD default/web-0 u1 box2: ok: ~created+0 ~scheduled+1000 watched+1010 shim started+1500 received+1502 pod known+1503 reserved+1503 attached+1505 answered+1506 addresses in status+2000 ready+2500
DEL default/web-0 u1 box2: ok: shim started+8998 received+9000 answered+9001 gone+9500
`
		if diff := cmp.Diff(want, told(r.Timelines("default/web-0"))); diff != "" {
			t.Error(diff)
		}
		if list := r.Timelines("default/web-1"); len(list) != 0 {
			t.Errorf("of another pod: %v", list)
		}
	})
}

// The runtime may be ahead of the watch, also with a pod that has the name of
// one that the watch still has.
func TestNamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(8, nil)
		defer r.Close()
		r.Pod(web("u1", 0), at(1000*ms))
		add(r, "u1", "box1", nil)
		r.Pod(web("u1", 2), at(2000*ms))
		at(3000 * ms)
		add(r, "u2", "box2", nil)
		r.Gone("default/web-0", at(3100*ms)) // this is u1
		r.Pod(web("u2", 0), at(3200*ms))
		r.Pod(web("u2", 1), at(4000*ms))
		r.Pod(web("u3", 0), at(5000*ms)) // the end of u2 was missed
		add(r, "u3", "box3", nil)
		r.Pod(web("u3", 2), at(6000*ms))
		const want = `ADD default/web-0 u1 box1: ok: ~created+0 ~scheduled+1000 watched+1000 shim started+1000 received+1002 pod known+1003 reserved+1003 attached+1005 answered+1006 addresses in status+2000 ready+2000
ADD default/web-0 u2 box2: ok: ~created+0 ~scheduled+1000 shim started+3000 received+3002 pod known+3003 reserved+3003 attached+3005 answered+3006 watched+3200 addresses in status+4000
ADD default/web-0 u3 box3: ok: ~created+0 ~scheduled+1000 watched+5000 shim started+5000 received+5002 pod known+5003 reserved+5003 attached+5005 answered+5006 addresses in status+6000 ready+6000
`
		if diff := cmp.Diff(want, told(r.Timelines(""))); diff != "" {
			t.Error(diff)
		}
	})
}

// A pod that gets another sandbox: what the status says of the first is not
// taken for the second's.
func TestSecondSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(8, nil)
		defer r.Close()
		r.Pod(web("u1", 0), at(1000*ms))
		add(r, "u1", "box1", nil)
		r.Pod(web("u1", 2), at(2000*ms))
		at(3000 * ms)
		add(r, "u1", "box2", nil)
		if got := told(r.Timelines("")); strings.Contains(got, "ready") || strings.Contains(got, "status") {
			t.Errorf("ready before anybody said so:\n%s", got)
		}
		again := web("u1", 2)
		again.Ready, again.Addresses = birth+4e9, []netip.Addr{netip.MustParseAddr("10.42.0.8")}
		r.Pod(again, at(4000*ms))
		if got := told(r.Timelines("")); !strings.Contains(got, "answered+3006 addresses in status+4000 ready+4000\n") {
			t.Errorf("the second sandbox is ready, but not here:\n%s", got)
		}
	})
}

// Without Kubernetes there is no pod, and without its UID there is its name.
func TestUnknownPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(8, nil)
		defer r.Close()
		at(0)
		for _, container := range []string{"box1", "box2"} {
			c := r.Begin(Start{Verb: "ADD", ContainerID: container, Received: time.Now()})
			c.End(nil)
		}
		add(r, "", "box3", nil)
		r.Pod(web("u1", 0), at(100*ms))
		r.Pod(web("u1", 2), at(200*ms))
		for _, verb := range []string{"CHECK", "GC", "STATUS", ""} {
			c := r.Begin(Start{Verb: verb})
			c.Mark("x")
			c.End(nil)
		}
		r.Pod(cluster.Pod{Namespace: "kube-system", Name: "proxy", UID: "u9", HostNetwork: true}, time.Now())
		const want = `ADD   box1: ok: received+0 answered+0
ADD   box2: ok: received+0 answered+0
ADD default/web-0 u1 box3: ok: ~created+0 ~scheduled+1000 shim started+0 received+2 pod known+3 reserved+3 attached+5 answered+6 watched+100 addresses in status+200 ready+200
`
		if diff := cmp.Diff(want, told(r.Timelines(""))); diff != "" {
			t.Error(diff)
		}
		if len(r.lives) != 3 {
			t.Errorf("%d pods are kept, want 3", len(r.lives))
		}
	})
}

// Whatever comes in whatever order: no more is kept than promised, and nothing
// that nobody asks for.
func TestMemoryIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 5
		r := New(size, nil)
		defer r.Close()
		var open []*Call
		alive := map[string]string{} // UID by name, as the watch has it
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		uid := rapid.SampledFrom([]string{"", "1", "2", "3"})
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				n, u := name.Draw(t, "name"), uid.Draw(t, "uid")
				if u != "" {
					u = n + u
				}
				open = append(open, r.Begin(Start{
					Verb: rapid.SampledFrom([]string{"ADD", "DEL"}).Draw(t, "verb"), Pod: "ns/" + n, UID: u,
					ContainerID: rapid.StringMatching("[a-z]{2}").Draw(t, "container"), Received: time.Now(),
				}))
			},
			"end": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				open[i].Mark("reserved")
				open[i].End(nil)
				open = append(open[:i], open[i+1:]...)
			},
			"pod": func(t *rapid.T) {
				n, u := name.Draw(t, "name"), uid.Draw(t, "uid")
				p := cluster.Pod{Namespace: "ns", Name: n, UID: n + u + "x", Ready: rapid.Int64Range(0, 2).Draw(t, "ready")}
				alive[n] = p.UID
				r.Pod(p, time.Now())
			},
			"gone": func(t *rapid.T) {
				n := name.Draw(t, "name")
				delete(alive, n)
				r.Gone("ns/"+n, time.Now())
			},
			"": func(t *rapid.T) {
				if len(r.calls) > size {
					t.Fatalf("%d calls are kept, want %d at most", len(r.calls), size)
				}
				called := map[*life]int{}
				for _, c := range r.calls {
					called[c.life]++
				}
				for id, l := range r.lives {
					watched := !l.watched.IsZero() && l.gone.IsZero()
					if l.id != id || l.kept != called[l] || called[l] == 0 && !watched {
						t.Fatalf("pod %s under %s: %d of %d calls, watched %v", l.id, id, l.kept, called[l], watched)
					}
				}
				for n, l := range r.names {
					if l.pod != n || !l.gone.IsZero() {
						t.Fatalf("%s is the name of %s, gone %s", n, l.pod, l.gone)
					}
				}
				for n, uid := range alive {
					if l := r.names["ns/"+n]; l == nil || l.uid != uid {
						t.Fatalf("the watch has %s with UID %s, here it is %+v", n, uid, l)
					}
				}
				r.Timelines("")
			},
		})
	})
}

// Whoever reads `weft pod trace` at night finds each step in the documentation.
func TestStepsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/sequence.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{
		Created, Scheduled, Watched, ShimStart, Received, PodKnown, engine.Reserved, engine.Announced, engine.Attached, Answered, Addressed, Ready, Gone,
	} {
		if !strings.Contains(string(raw), "`"+step+"`") {
			t.Errorf("docs/sequence.md does not have the step %q", step)
		}
	}
	spans := []string{"pod start", "schedule", "kubelet and runtime", "runtime, kubelet and watch", "containers and readiness", "weft-cni ADD", "agent ADD", "weft-cni DEL", "agent DEL", "answer"}
	for _, span := range slices.AppendSeq(spans, maps.Values(steps)) {
		if !strings.Contains(string(raw), "─ "+span+" ") && !strings.Contains(string(raw), "\n"+span+" ") && !strings.Contains(string(raw), span+"\n") {
			t.Errorf("docs/sequence.md does not have the span %q", span)
		}
	}
}
