// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/test/crash/node"
)

// stage is a node on which one scenario is played, again and again. Each run
// must leave it as it was.
type stage struct {
	*testing.T
	scenario
	n     *node.Node
	agent *node.Agent

	crashFile, pluginTrace, agentTrace string

	baseline node.View
	runs     int
}

func newStage(t *testing.T, s scenario) *stage {
	t.Helper()
	n, err := node.New(s.String())
	if err != nil {
		t.Fatal(err)
	}
	n.CNIPath += ":" + os.Getenv(refpluginsEnv)
	st := &stage{
		T: t, scenario: s, n: n,
		crashFile:   filepath.Join(n.Dir, "crash"),
		pluginTrace: filepath.Join(n.Dir, "plugin.trace"),
		agentTrace:  filepath.Join(n.Dir, "agent.trace"),
	}
	t.Cleanup(func() {
		if st.agent != nil {
			st.agent.Kill()
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	st.quietSweep()
	st.startAgent()
	first := st.newPod("first") // makes the journal
	st.ok(st.call("ADD", first))
	st.ok(st.call("DEL", first))
	st.gone(first)
	st.must(first.sandbox.Delete())
	if s.beside {
		p := st.newPod(bystander)
		st.ok(st.call("ADD", p))
	}
	st.stopAgentIfOffline()
	return st
}

// quietSweep puts the thin plugin's next garbage collection off: it shall
// happen when the test wants it.
func (st *stage) quietSweep() {
	st.Helper()
	later := time.Now().Add(time.Hour)
	stamp := filepath.Join(st.n.StateDir, "swept")
	err := os.MkdirAll(st.n.StateDir, 0o700)
	if err == nil {
		err = os.WriteFile(stamp, nil, 0o600)
	}
	if err == nil {
		err = os.Chtimes(stamp, later, later)
	}
	st.must(err)
}

func (st *stage) must(err error) {
	st.Helper()
	if err != nil {
		st.Fatal(err)
	}
}

// startAgent starts the agent where there should be one and is none.
func (st *stage) startAgent() {
	st.Helper()
	if !st.hasAgent() || (st.agent != nil && st.agent.Alive()) {
		return
	}
	a, err := st.n.StartAgent(agentNetwork, time.Hour, "WEFT_CRASH_FILE="+st.crashFile+".agent", "WEFT_CRASH_TRACE="+st.agentTrace)
	st.must(err)
	st.agent = a
}

func (st *stage) stopAgent() {
	st.Helper()
	if st.agent != nil && st.agent.Alive() {
		st.must(st.agent.Stop())
	}
}

func (st *stage) stopAgentIfOffline() {
	st.Helper()
	if st.mode == offline {
		st.stopAgent()
	}
}

// pod is an attachment as the runtime knows it.
type pod struct {
	key     attach.Key
	sandbox *node.Sandbox
}

func (st *stage) newPod(name string) pod {
	st.Helper()
	sb, err := st.n.NewSandbox()
	st.must(err)
	return pod{key: attach.Key{Network: network, ContainerID: name, Ifname: ifname}, sandbox: sb}
}

func (st *stage) call(verb string, p pod) node.Outcome {
	st.Helper()
	return st.callWith(verb, p, true)
}

func (st *stage) callWith(verb string, p pod, repeated bool) node.Outcome {
	st.Helper()
	binary := "weft-cni"
	if st.mode == ipamOnly {
		binary = "weft-ipam"
	}
	o, err := st.n.Call(node.Call{
		Verb: verb, ContainerID: p.key.ContainerID, Netns: p.sandbox.Path, Ifname: p.key.Ifname,
		Config: st.config(st.n, p.key.ContainerID, repeated), Binary: binary,
		Env: []string{"WEFT_CRASH_FILE=" + st.crashFile + ".plugin", "WEFT_CRASH_TRACE=" + st.pluginTrace},
	})
	st.must(err)
	return o
}

func (st *stage) ok(o node.Outcome) node.Outcome {
	st.Helper()
	if !o.OK() {
		st.Fatalf("%s\n%s", o, st.agentLog())
	}
	return o
}

func (st *stage) agentLog() string {
	if st.agent == nil {
		return ""
	}
	return "agent: " + st.agent.Log()
}

// begin makes what the scenario's call needs: a pod, attached if it is DEL that
// will be called, and a long journal.
func (st *stage) begin() pod {
	st.Helper()
	st.runs++
	if !st.beside {
		st.stopForwarding()
	}
	p := st.newPod(fmt.Sprintf("c%d", st.runs))
	if st.mode == offline {
		st.stopAgent()
	} else {
		st.startAgent()
	}
	if st.verb == "DEL" {
		st.ok(st.call("ADD", p))
	}
	if st.compact {
		st.stopAgent()
		st.lengthenJournal()
		st.startAgent()
	}
	return p
}

// stopForwarding makes the node as it was before its first pod: forwarding is
// what Weft leaves on.
func (st *stage) stopForwarding() {
	st.Helper()
	st.must(st.n.Do(func() error {
		for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+key, []byte("0"), 0); err != nil {
				return err
			}
		}
		return nil
	}))
}

// lengthenJournal appends lines that change nothing, as many as make the next
// writer compact. The format is that of package journal.
func (st *stage) lengthenJournal() {
	st.Helper()
	f, err := st.n.Facts()
	st.must(err)
	config := f.Config()
	if config == "" {
		config = "{}"
	}
	entry, err := facts.EncodeConfig(1, config)
	st.must(err)
	line := fmt.Sprintf("%08x %s\n", crc32.ChecksumIEEE([]byte(entry)), entry)
	files, err := filepath.Glob(filepath.Join(st.n.StateDir, "journal.*"))
	st.must(err)
	if len(files) != 1 {
		st.Fatalf("journals %v: want one", files)
	}
	w, err := os.OpenFile(files[0], os.O_WRONLY|os.O_APPEND, 0)
	st.must(err)
	_, err = w.WriteString(strings.Repeat(line, 600))
	st.must(err)
	st.must(w.Close())
}

// view adds to the node's what host-local keeps: one file per address.
func (st *stage) view() node.View {
	st.Helper()
	v, err := st.n.View()
	st.must(err)
	reserved, err := filepath.Glob(filepath.Join(hostLocalDir(st.n), network, "*[.:]*[0-9a-f]"))
	st.must(err)
	for _, file := range reserved {
		if name := filepath.Base(file); !strings.HasPrefix(name, "last_reserved_ip") {
			v = append(v, "host-local "+name)
		}
	}
	return v
}

// restored expects the node to be as it was at the beginning, and no lock held.
func (st *stage) restored(p pod) {
	st.Helper()
	if st.hasAgent() {
		st.startAgent() // its socket is part of the picture
	}
	diff := ""
	if !node.Until(node.Limit, func() bool {
		diff = st.baseline.Compare(st.view())
		return diff == ""
	}) {
		st.Fatalf("the node is not as before:%s\n%s", diff, st.agentLog())
	}
	st.unlocked(p)
}

func (st *stage) unlocked(p pod) {
	st.Helper()
	l, err := st.n.OpenLocal(st.hasAgent())
	st.must(err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), node.Limit)
	defer cancel()
	unlock, err := l.Store.LockKey(ctx, p.key.String())
	st.must(err)
	unlock()
	if !st.hasAgent() {
		st.must(l.Store.View(ctx, func(*facts.Facts) error { return nil }))
	}
}
