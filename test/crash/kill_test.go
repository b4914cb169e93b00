// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/test/crash/node"
)

// TestKillAtEveryPoint plays every scenario with SIGKILL at every point.
func TestKillAtEveryPoint(t *testing.T) {
	var places, kills atomic.Int64
	begin := time.Now()
	t.Run("scenario", func(t *testing.T) {
		for _, s := range scenarios() {
			t.Run(s.String(), func(t *testing.T) {
				t.Parallel()
				st := newStage(t, s)
				points := st.survey()
				st.expectPoints(points)
				places.Add(int64(len(points)))
				for _, p := range points {
					for _, nx := range s.nexts() {
						if t.Failed() {
							return // a broken stage would only repeat the failure
						}
						t.Run(fmt.Sprintf("%s/%s", p, nx), func(t *testing.T) {
							run := *st // its own *testing.T
							run.T = t
							defer func() { st.agent, st.runs = run.agent, run.runs }()
							run.play(p, nx)
							kills.Add(1)
						})
					}
				}
				t.Logf("%d points: %v", len(points), points)
			})
		}
	})
	fmt.Printf("crash: %d scenarios, %d points, %d processes killed, in %s\n",
		len(scenarios()), places.Load(), kills.Load(), time.Since(begin).Round(time.Second))
}

// play kills once and lets the runtime go on.
func (st *stage) play(at point, nx next) {
	st.Helper()
	p := st.begin()
	st.strike(at, p)
	rec := st.consistent(p)
	switch nx {
	case retry, retryAlive, repeat:
		st.playRetry(p, nx, rec)
	case del, again:
		st.startAgentUnlessOffline()
		if nx == again {
			if rec.Phase == facts.Releasing {
				rec = facts.Record{} // released is released: the next one may get it
			}
			st.addOnceMore(rec, p)
			st.consistent(p)
		}
		st.ok(st.call("DEL", p))
	case stayDown:
		st.ok(st.call("DEL", p))
		st.noRecord(p)
	case abandon:
		st.playAbandon(p)
		st.restored(p)
		return
	}
	st.restored(p)
	st.must(p.sandbox.Delete())
}

func (st *stage) startAgentUnlessOffline() {
	st.Helper()
	if st.mode != offline {
		st.startAgent()
	}
}

// strike makes the call with the point armed, and expects the process to die.
func (st *stage) strike(at point, p pod) {
	st.Helper()
	file := st.victimFile()
	st.must(os.WriteFile(file, []byte(at.String()), 0o600))
	o := st.call(st.verb, p)
	if st.scenario.agent {
		if !st.agent.Killed(node.Limit) {
			st.Fatalf("the agent was not killed at %s; %s\n%s", at, o, st.agentLog())
		}
		if st.verb == "ADD" && o.CNICode != 11 {
			st.Fatalf("the agent dies during ADD: want code 11, to try again; %s", o)
		}
	} else if o.Signal != syscall.SIGKILL {
		st.Fatalf("the plugin was not killed at %s; %s", at, o)
	}
	if _, err := os.Stat(file); err == nil {
		st.Fatalf("point %s was not reached", at)
	}
	if st.mode == thick && !st.scenario.agent && (at.name == "wire-send:after") {
		st.served(p)
	}
}

// served waits until the agent has done what the dead shim asked for.
func (st *stage) served(p pod) {
	st.Helper()
	if !node.Until(node.Limit, func() bool {
		rec, found, err := st.n.Record(p.key)
		st.must(err)
		return found == (st.verb == "ADD") && (!found || rec.Phase == facts.Complete)
	}) {
		st.Fatalf("the agent does not finish the call of a shim that died\n%s", st.agentLog())
	}
}

// consistent expects no address to be free that something on the node uses,
// and returns the pod's record, zero if there is none.
func (st *stage) consistent(p pod) facts.Record {
	st.Helper()
	// The journal first: an agent that lives may be removing something just
	// now, and frees an address after the interface is gone.
	f, err := st.n.Facts()
	st.must(err)
	rec, _ := f.Get(p.key)
	led, err := st.n.HostRoutes()
	st.must(err)
	inside, err := p.sandbox.Addresses(p.key.Ifname)
	st.must(err)
	usage := f.Usage(facts.Veth, network)
	for a, link := range led {
		if _, held := usage.Owner(a); !held {
			st.Errorf("address %s is led to %s and free in the journal", a, link)
		}
	}
	for _, text := range inside {
		owner, held := usage.Owner(netip.MustParseAddr(text))
		if !held || owner != p.key.String() {
			st.Errorf("address %s is on %s in the sandbox; in the journal it is %q's", text, p.key.Ifname, owner)
		}
	}
	return rec
}

// playRetry repeats the call. What an intent has promised is kept.
func (st *stage) playRetry(p pod, nx next, rec facts.Record) {
	st.Helper()
	if nx == retryAlive {
		st.startAgent()
	} else {
		st.startAgentUnlessOffline()
	}
	if nx == repeat && rec.Phase == facts.Complete {
		st.refused(p)
	}
	if st.verb == "ADD" {
		st.addOnceMore(rec, p)
	} else {
		st.ok(st.call("DEL", p))
	}
	st.consistent(p)
	st.ok(st.call("DEL", p))
	st.ok(st.call("DEL", p))
}

// refused expects a second ADD for a complete attachment to be refused, as the
// specification wants it, and to change nothing.
func (st *stage) refused(p pod) {
	st.Helper()
	before := st.view()
	if o := st.callWith("ADD", p, false); o.CNICode != 100 {
		st.Fatalf("a repeated ADD of a complete attachment: want code 100; %s", o)
	}
	if diff := before.Compare(st.view()); diff != "" {
		st.Fatalf("the refused ADD changed something:%s", diff)
	}
}

// addOnceMore calls ADD, which must succeed. weft-ipam knows no "repeatAdd":
// it wants a DEL before.
func (st *stage) addOnceMore(rec facts.Record, p pod) {
	st.Helper()
	if st.mode == ipamOnly && rec.Phase == facts.Complete {
		st.refused(p)
		st.ok(st.call("DEL", p))
		rec = facts.Record{}
	}
	st.sameAddress(rec, st.ok(st.call("ADD", p)), p)
}

// sameAddress expects the result to have the addresses that the record held
// when the process died, and the node to have them.
func (st *stage) sameAddress(rec facts.Record, o node.Outcome, p pod) {
	st.Helper()
	got, err := o.Addresses()
	st.must(err)
	want := slices.SortedFunc(slices.Values(rec.Addresses), netip.Addr.Compare)
	if len(want) > 0 && st.mode != hostLocal && !slices.Equal(got, want) {
		st.Errorf("the repeated ADD got %v; the record has %v", got, want)
	}
	if st.mode == ipamOnly {
		return // weft-ipam makes no interface
	}
	inside, err := p.sandbox.Addresses(p.key.Ifname)
	st.must(err)
	for _, a := range got {
		if !slices.Contains(inside, a.String()) {
			st.Errorf("the repeated ADD got %v; the sandbox has %v", got, inside)
		}
	}
}

// noRecord expects the record to be gone, with the agent still dead.
func (st *stage) noRecord(p pod) {
	st.Helper()
	if rec, found, err := st.n.Record(p.key); err != nil || found {
		st.Fatalf("the record is left, in phase %s (%v)", rec.Phase, err)
	}
}

// playAbandon lets the sandbox go without a further call. Garbage collection,
// which the agent does when it starts and the thin plugin now and then, frees
// everything: what was half done at once, what was complete after it was seen
// dead twice with the grace period in between.
func (st *stage) playAbandon(p pod) {
	st.Helper()
	st.must(p.sandbox.Delete())
	if !node.Until(node.Limit, func() bool { return st.linkGone(p) }) {
		st.Fatalf("the kernel does not remove %s with the sandbox", p.key.HostIfname())
	}
	st.startAgent()
	st.stopAgent()
	l, err := st.n.OpenLocal(st.hasAgent())
	st.must(err)
	defer l.Close()
	st.sweep(l)
	if rec, found, err := st.n.Record(p.key); err != nil || (found && (rec.Phase != facts.Complete || rec.Suspect == 0)) {
		st.Fatalf("after the first observation: phase %s, suspect %d, %v; want no record, or a suspected one", rec.Phase, rec.Suspect, err)
	}
	l.Advance(engine.Grace + time.Second)
	st.sweep(l)
	st.noRecord(p)
}

// linkGone reports whether the host's end of the pod's pair is gone.
func (st *stage) linkGone(p pod) bool {
	st.Helper()
	v, err := st.n.View()
	st.must(err)
	return !slices.ContainsFunc(v, func(line string) bool { return strings.HasPrefix(line, "link "+p.key.HostIfname()+" ") })
}

func (st *stage) sweep(l *node.Local) {
	st.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), node.Limit)
	defer cancel()
	_, err := l.Sweep(ctx)
	st.must(err)
}

func values(m map[netip.Addr]string) []string {
	var list []string
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
