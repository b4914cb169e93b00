// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"weft.dev/weft/test/crash/node"
)

// point is a place where the process dies: the nth time that it passes a
// crash.Point of this name during the call.
type point struct {
	name  string
	times int
}

func (p point) String() string { return fmt.Sprintf("%s %d", p.name, p.times) }

// passed reads which points a process has passed, from an offset in its trace.
func passed(trace string, from int64) ([]string, error) {
	text, err := os.ReadFile(trace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(text[from:])), nil
}

func sizeOf(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// numbered tells points of the same name apart.
func numbered(names []string) []point {
	seen := make(map[string]int)
	var points []point
	for _, name := range names {
		seen[name]++
		points = append(points, point{name, seen[name]})
	}
	return points
}

// trace returns the file to which the process that is to die writes.
func (st *stage) trace() string {
	if st.scenario.agent {
		return st.agentTrace
	}
	return st.pluginTrace
}

func (st *stage) victimFile() string {
	if st.scenario.agent {
		return st.crashFile + ".agent"
	}
	return st.crashFile + ".plugin"
}

// survey serves the call once, without harm, and returns every point that the
// process passes. What is on the node afterwards is what each run must lead
// back to.
func (st *stage) survey() []point {
	st.Helper()
	p := st.begin()
	from := sizeOf(st.trace())
	st.ok(st.call(st.verb, p))
	var names []string
	complete := func() bool {
		var err error
		names, err = passed(st.trace(), from)
		st.must(err)
		_, found, err := st.n.Record(p.key)
		st.must(err)
		// An agent ends the record after it has answered.
		last := len(names) - 1
		return found == (st.verb == "ADD") && last >= 0 && strings.Contains(names[last], "after")
	}
	if !node.Until(node.Limit, complete) {
		st.Fatalf("%s: the record is not what it should be; points: %v", st.verb, names)
	}
	st.ok(st.call("DEL", p))
	st.gone(p)
	st.must(p.sandbox.Delete())
	st.startAgent()
	st.baseline = st.view()
	return numbered(names)
}

// gone waits until the record has ended, and the agent has passed the last
// point of it.
func (st *stage) gone(p pod) {
	st.Helper()
	if !node.Until(node.Limit, func() bool {
		_, found, err := st.n.Record(p.key)
		st.must(err)
		if found || st.agent == nil {
			return !found
		}
		names, err := passed(st.agentTrace, 0)
		st.must(err)
		return len(names) == 0 || names[len(names)-1] == "journal-after-write"
	}) {
		st.Fatalf("record %s does not end\n%s", p.key, st.agentLog())
	}
}

// expected names points that a scenario must pass: without them it would not
// try what it is there for.
func (s scenario) expected() []string {
	var want []string
	switch {
	case s.mode == thick && !s.agent:
		return []string{"wire-connect:before", "wire-connect:after", "wire-send:after", "wire-receive:after", "answer:before", "answer:after"}
	case s.mode == ipamOnly:
		want = []string{"journal-before-write", "journal-after-write"}
	case s.verb == "ADD":
		want = []string{"kernel-link-add:before", "kernel-host-link:after", "kernel-pod-link:after", "journal-after-write"}
		if s.capable {
			want = append(want, "kernel-shape:shaper", "kernel-shape:after", "kernel-hostport:mapped", "kernel-hostport:after")
		}
	case s.capable:
		want = []string{"kernel-hostport:unmapped", "kernel-group-delete:marked", "kernel-group-delete:after", "kernel-hostport:removed"}
	default:
		want = []string{"kernel-link-delete:before", "kernel-link-delete:after", "journal-after-write"}
	}
	if s.compact {
		want = append(want, "journal-before-rename", "journal-after-rename")
	}
	if s.mode == hostLocal {
		want = append(want, "delegate:before", "delegate:after")
	}
	if s.mode == thin && !s.beside && s.verb == "ADD" {
		want = append(want, "kernel-nft:before", "kernel-gateway-add:after")
	}
	if s.mode == thin && !s.beside && s.verb == "DEL" {
		want = append(want, "kernel-nft:after", "kernel-gateway-delete:before")
	}
	return want
}

func (st *stage) expectPoints(points []point) {
	st.Helper()
	for _, want := range st.expected() {
		if !slices.ContainsFunc(points, func(p point) bool { return p.name == want }) {
			st.Errorf("point %s is not passed; passed are %v", want, points)
		}
	}
}
