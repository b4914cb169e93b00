// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/wire"
)

// tracingSocket answers the question for timelines with the list, and refuses
// others.
func tracingSocket(t *testing.T, list []report.Timeline) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
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
			raw, _ := io.ReadAll(conn)
			resp := wire.Response{Version: wire.Version, Failed: true, Output: []byte(`{"cniVersion":"1.1.0","code":2,"msg":"what?"}`)}
			if r, err := wire.DecodeRequest(raw); err == nil && r.Query == "timeline" {
				resp.Failed = false
				resp.Output, _ = json.Marshal(list)
			}
			answer, _ := json.Marshal(resp)
			_, _ = conn.Write(answer)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); done.Wait() })
	return socket
}

func trace(t *testing.T, socket string, args ...string) (string, error) {
	t.Helper()
	var s stateFlags
	var out bytes.Buffer
	cmd := newPodTrace(&s)
	s.add(cmd)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append(args, "--socket", socket))
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestPodTrace(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	mark := func(name string, after time.Duration) report.Mark { return report.Mark{Name: name, At: at.Add(after)} }
	socket := tracingSocket(t, []report.Timeline{
		{Pod: "shop/web-0", UID: "u0", ContainerID: "aaaa1111", Verb: "ADD", Result: "ok", Marks: []report.Mark{mark("received", 0), mark("answered", 3e6)}},
		{Pod: "shop/web-1", UID: "u1", ContainerID: "bbbb2222", Verb: "ADD", Result: "no address", Marks: []report.Mark{mark("answered", 5e6)}},
		{Pod: "shop/web-1", UID: "u1", ContainerID: "bbbb2222", Verb: "DEL", Marks: []report.Mark{mark("received", 9e6)}},
	})
	for pod, lines := range map[string]int{"shop/web-0": 2, "web-1": 2, "u1": 2, "aaaa": 2, "": 0} {
		args := []string{pod}
		if pod == "" {
			args, lines = nil, 4
		}
		out, err := trace(t, socket, args...)
		if got := strings.Count(out, "\n") - 1; err != nil || got != lines {
			t.Errorf("weft pod trace %s: %d lines, want %d; %v\n%s", pod, got, lines, err, out)
		}
	}
	const want = "shop/web-0  aaaa1111   ADD   answered  03:04:05.009000  3ms    ok\n"
	if out, _ := trace(t, socket, "web-0"); !strings.HasSuffix(out, want) {
		t.Errorf("%s\nwant, at the end, %s", out, want)
	}
	out, err := trace(t, socket, "web-1", "-o", "json")
	var steps []report.Step
	if err != nil || json.Unmarshal([]byte(out), &steps) != nil || len(steps) != 2 || steps[0].Result != "no address" || steps[1].Verb != "DEL" {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
	if _, err := trace(t, socket, "web-7"); err == nil || !strings.Contains(err.Error(), `"web-7"`) {
		t.Errorf("unknown pod: %v", err)
	}
	if _, err := trace(t, filepath.Join(t.TempDir(), "none"), "web-0"); err == nil || !strings.Contains(err.Error(), "--socket") {
		t.Errorf("no agent: %v", err)
	}
}
