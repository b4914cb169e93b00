// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/wire"
)

var told = report.Report{
	Subsystems: []report.Subsystem{{Subsystem: "leases", State: report.Pending, Detail: "none held"}},
	Nodes: []report.Node{
		{Name: "node1", Subnets: []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24")}, Way: "self", State: "ok"},
		{Name: "node2", Subnets: []netip.Prefix{netip.MustParsePrefix("10.42.2.0/24")}, Way: "vxlan", State: "ok"},
	},
	Leases: []report.Lease{
		{Name: "10-42-1-0-24", Subnet: netip.MustParsePrefix("10.42.1.0/24"), Node: "node1", State: "in use here"},
		{Name: "10-42-2-0-24", Subnet: netip.MustParsePrefix("10.42.2.0/24"), Node: "node2", State: "ok"},
	},
	Routes: []report.Route{
		{Destination: netip.MustParsePrefix("10.42.1.7/32"), Kind: "pod", State: "in sync", Origin: "Pod lab/a"},
		{Destination: netip.MustParsePrefix("10.42.2.0/24"), Kind: "vxlan", State: "in sync", Origin: "SubnetLease 10-42-2-0-24 of node2"},
	},
}

// agentSocket answers every question with told until the test ends.
func agentSocket(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	output, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(wire.Response{Version: wire.Version, Output: output})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, conn)
			_, _ = conn.Write(answer)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); done.Wait() })
	return socket
}

func weft(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := New("test")
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestClusterCommands(t *testing.T) {
	socket := agentSocket(t)
	for command, want := range map[string][]string{
		"node list":                {"node1 ", "node2 "},
		"lease list":               {"10-42-1-0-24 ", "in use here"},
		"route list":               {"10.42.1.7/32 ", "Pod lab/a"},
		"route list -o yaml":       {"- destination: 10.42.1.7/32", "origin: Pod lab/a"},
		"node show node2":          {"node2 ", "10-42-2-0-24 ", "SubnetLease 10-42-2-0-24 of node2"},
		"node show node1":          {"node1 ", "10-42-1-0-24 ", "Pod lab/a"},
		"node show node2 -o json":  {`"leases": [`, `"routes": [`, `"name": "node2"`},
		"lease list --output json": {`"subnet": "10.42.1.0/24"`},
	} {
		out, err := weft(t, append(strings.Fields(command), "--socket", socket)...)
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s: no %q in\n%s", command, text, out)
			}
		}
		if strings.HasPrefix(command, "node show") && strings.Contains(out, "10.42.1.7/32") != strings.Contains(command, "node1") {
			t.Errorf("%s shows routes of another node:\n%s", command, out)
		}
	}
	if out, err := weft(t, "node", "show", "node9", "--socket", socket); err == nil || !strings.Contains(err.Error(), "node1 node2") {
		t.Errorf("a node that is not known: %v\n%s", err, out)
	}
}

func TestClusterCommandsWithoutAgent(t *testing.T) {
	for _, command := range []string{"node list", "node show node1", "lease list", "route list"} {
		_, err := weft(t, append(strings.Fields(command), "--state-dir", t.TempDir())...)
		if err == nil || !strings.Contains(err.Error(), "no agent listens") || !strings.Contains(err.Error(), "start it") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestStatusWait(t *testing.T) {
	out, err := weft(t, "status", "--wait", "300ms", "--socket", agentSocket(t))
	if err == nil || !strings.Contains(err.Error(), "not in sync after 300ms") || !strings.Contains(out, "none held") {
		t.Errorf("%v\n%s", err, out)
	}
}
