// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keepEvidence puts everything that tells why a test failed into one directory,
// and names it. It does nothing if the test did not fail, or if that was done for
// the test, or for a part of it.
func (s *suite) keepEvidence(t *testing.T) {
	t.Helper()
	if !t.Failed() || !s.firstOf(t.Name()) {
		return
	}
	dir, err := os.MkdirTemp(os.Getenv("WEFT_E2E_LOGS"), slug(t)+"-")
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t.Logf("evidence is in %s", dir)
	e := evidence{t, ctx, dir}
	e.copyLogs(s.LogDir(), "components")
	for name, args := range map[string][]string{
		"objects.txt":  {"get", "nodes,pods,services,daemonsets,ippools,subnetleases,addressclaims", "-A", "-o", "wide"},
		"objects.yaml": {"get", "nodes,pods,ippools,subnetleases,addressclaims,clusterroles/weft", "-A", "-o", "yaml"},
		"events.txt":   {"get", "events", "-A", "--sort-by=.lastTimestamp", "-o", "wide"},
	} {
		out, err := s.Kubectl(ctx, append(args, "--request-timeout=10s")...)
		e.write(name, out, err)
	}
	for _, n := range s.Nodes {
		e.copyLogs(filepath.Join(n.Root, "var/log/pods"), n.Name+"-pods")
		for name, argv := range map[string][]string{
			"status":  {s.made.present.weft(), "status"},
			"journal": {s.made.present.weft(), "pod", "list", "-o", "yaml"},
			"ipam":    {s.made.present.weft(), "ipam", "show"},
			"check":   {s.made.present.weft(), "ipam", "check", "--history"},
			"trace":   {s.made.present.weft(), "pod", "trace"},
			"links":   {"ip", "-details", "address"},
			"routes":  {"sh", "-c", "ip route show table all; ip -6 route show table all; ip neighbour; ip -6 neighbour"},
			"nft":     {"nft", "list", "ruleset"},
			"cni":     {"sh", "-c", "ls -l /etc/cni/net.d /opt/cni/bin /run/weft /run/netns; cat /etc/cni/net.d/*"},
		} {
			out, err := n.Exec(ctx, argv...)
			e.write(n.Name+"-"+name+".txt", out, err)
		}
	}
}

// firstOf notes that there is evidence for a test, unless there was.
func (s *suite) firstOf(test string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.kept {
		if name == test || strings.HasPrefix(name, test+"/") {
			return false
		}
	}
	s.kept = append(s.kept, test)
	return true
}

type evidence struct {
	t   *testing.T
	ctx context.Context
	dir string
}

// write writes a file, with the error in its last line if there is one.
func (e evidence) write(name, text string, err error) {
	if err != nil {
		text += fmt.Sprintf("\nerror: %v\n", err)
	}
	path := filepath.Join(e.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		e.t.Error(err)
		return
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		e.t.Error(err)
	}
}

// copyLogs copies the logs below a directory.
func (e evidence) copyLogs(from, to string) {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".log") {
			return nil // what vanishes meanwhile is no log of a failure
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		e.write(filepath.Join(to, rel), string(text), err)
		return nil
	})
	if err != nil {
		e.t.Error(err)
	}
}
