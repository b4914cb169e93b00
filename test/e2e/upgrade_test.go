// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/install"
	"weft.dev/weft/test/cluster"
)

// Weft is upgraded while connections are open and requests go on, between pods on
// the same and on different nodes, directly and through a Service. No connection
// breaks, no request fails; pods that are made meanwhile start, and others end.
// Afterwards agent and plugin of every node are the new ones; the plugin was
// replaced as a whole, and a call of the old one that was under way is served.
func testUpgrade(t *testing.T, s *suite) {
	ns := s.namespace(t)
	load := s.underLoad(t, ns)
	before := s.agents(t)
	plugins := map[string]*plugin{}
	for _, n := range s.Nodes {
		plugins[n.Name] = s.callPlugin(t, n)
	}
	churn := s.churn(t, ns)
	s.way.upgrade(t, s)
	s.rolledOut(t, "daemonset/weft")
	made := churn()
	s.unbroken(t, load)
	t.Logf("%d pods were made and deleted during the upgrade", made)
	if made < 2 {
		t.Errorf("%d pods started during the upgrade, want some", made)
	}
	for node, name := range s.agents(t) {
		if before[node] == name {
			t.Errorf("the agent of %s is pod %s, as before", node, name)
		}
	}
	for _, n := range s.Nodes {
		s.upgraded(t, n)
		plugins[n.Name].replaced(t, s.made)
	}
}

// upgraded: the agent on the node is of the next release, and all is well.
func (s *suite) upgraded(t *testing.T, n *cluster.Node) {
	t.Helper()
	text, err := askHTTP(t.Context(), n, netip.AddrPortFrom(n.Addresses[0], 9119), "metrics")
	if err != nil || !strings.Contains(text, `version="`+s.made.next.version+`"`) {
		t.Errorf("the agent of %s is not of version %s: %v", n.Name, s.made.next.version, err)
	}
	await(t, 30*time.Second, n.Name, func(ctx context.Context) error { return s.settled(ctx, n) })
}

// plugin is the runtime's on a node, and a call of it that is under way.
type plugin struct {
	node   *cluster.Node
	path   string
	file   *os.File // as it was
	call   *exec.Cmd
	stdin  io.WriteCloser
	stdout bytes.Buffer
}

// callPlugin opens the plugin's file and begins a call, which waits for its
// configuration.
func (s *suite) callPlugin(t *testing.T, n *cluster.Node) *plugin {
	t.Helper()
	p := &plugin{node: n, path: filepath.Join(n.BinDir, install.PluginName)}
	var err error
	if p.file, err = os.Open(p.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.file.Close() })
	p.call = exec.Command("/opt/cni/bin/" + install.PluginName)
	p.call.Env = []string{"CNI_COMMAND=STATUS", "CNI_PATH=/opt/cni/bin"}
	p.call.Stdout, p.call.WaitDelay = &p.stdout, time.Second
	if p.stdin, err = p.call.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stdin.Close() })
	if err := n.Enter(p.call.Start); err != nil {
		t.Fatal(err)
	}
	return p
}

// replaced: the file is another one with what the next release has, the one that
// was there has what it had, and the call is served by it.
func (p *plugin) replaced(t *testing.T, made *artifacts) {
	t.Helper()
	now, err := os.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	if same, err := sameFile(p.file, now); same || err != nil {
		t.Errorf("%s: the file was not replaced by another one: %v", p.path, err)
	}
	running, err := os.Open(fmt.Sprintf("/proc/%d/exe", p.call.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if same, err := sameFile(p.file, running); !same || err != nil {
		t.Errorf("%s: the call that is under way does not run the file that was there: %v", p.path, err)
	}
	for _, f := range []struct {
		file *os.File
		want release
	}{{p.file, made.present}, {now, made.next}} {
		got, err := io.ReadAll(f.file)
		want, err2 := os.ReadFile(filepath.Join(f.want.bin, install.PluginName))
		if err := errors.Join(err, err2); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: want the plugin of %s, found another one: %v", p.path, f.want.version, err)
		}
	}
	if err := p.finish(); err != nil {
		t.Errorf("the call of the plugin on %s that was under way: %v\n%s", p.node.Name, err, p.stdout.String())
	}
}

// finish gives the call the node's configuration, and returns how it ended.
func (p *plugin) finish() error {
	text, err := os.ReadFile(filepath.Join(p.node.ConfDir, "10-weft.conflist"))
	if err != nil {
		return err
	}
	var list struct {
		Name    string
		Plugins []map[string]any
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	config := list.Plugins[0]
	config["name"], config["cniVersion"] = list.Name, "1.1.0"
	err = json.NewEncoder(p.stdin).Encode(config)
	return errors.Join(err, p.stdin.Close(), p.call.Wait())
}

// sameFile says whether both are one file.
func sameFile(a, b *os.File) (bool, error) {
	ai, err := a.Stat()
	bi, err2 := b.Stat()
	if err := errors.Join(err, err2); err != nil {
		return false, err
	}
	return os.SameFile(ai, bi), nil
}
