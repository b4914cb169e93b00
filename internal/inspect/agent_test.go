// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/kernel/nstest"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agentThat listens in a state directory of its own and answers with what
// answer returns, until the test ends.
func agentThat(t *testing.T, answer func(wire.Request) wire.Response) Node {
	t.Helper()
	n := Node{StateDir: t.TempDir()}
	listener, err := net.Listen("unix", n.SocketPath())
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
			r, err := wire.DecodeRequest(raw)
			if err != nil {
				t.Error(err)
			}
			out, _ := json.Marshal(answer(r))
			_, _ = conn.Write(out)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); done.Wait() })
	return n
}

func reporting(t *testing.T, r report.Report) wire.Response {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Error(err)
	}
	return wire.Response{Version: wire.Version, Output: raw}
}

func TestStatusShowsWhatTheAgentSays(t *testing.T) {
	n := agentThat(t, func(r wire.Request) wire.Response {
		if r.Query == "" {
			return wire.Response{} // STATUS of CNI: ready
		}
		if r.Query != report.Status {
			t.Errorf("asked for %q", r.Query)
		}
		return reporting(t, report.Report{
			Subsystems: []report.Subsystem{{Subsystem: "kernel routes", State: report.Pending, Since: now, Pending: 3, Detail: "3 of 7 to be done", LastError: "boom", LastErrorAt: now}},
			Rejected:   []report.Rejection{{Object: "IPPool late", Reason: "overlaps"}},
		})
	})
	var got string
	nstest.New(t).Do(func() { got = cells(Status(n, now)) })
	for _, want := range []string{
		"kernel routes | pending | 2026-01-02T03:04:05Z | 3 | 3 of 7 to be done; last error 2026-01-02T03:04:05Z: boom\n",
		"rejected | problem |  |  | IPPool late: overlaps\n",
		"agent | ok |", "journal | ok |", "attachments | ok |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestQueryOfNobodyAndOfAnOldAgent(t *testing.T) {
	_, err := Node{StateDir: t.TempDir()}.Everything()
	if !errors.Is(err, wire.ErrNoAgent) || !strings.Contains(err.Error(), "start it") || strings.Contains(err.Error(), "\n") {
		t.Errorf("nobody: %v", err)
	}
	// What an agent does that has never heard of queries.
	old := agentThat(t, func(r wire.Request) wire.Response {
		cerr := cni.CallFromEnv(func(key string) string { return r.Env[key] }, r.Config).Check()
		return wire.Response{Output: cerr.Encode(cni.NewestVersion), Failed: true}
	})
	if _, err := old.Everything(); err == nil || !strings.Contains(err.Error(), "older release") {
		t.Errorf("an old agent: %v", err)
	}
	refusing := agentThat(t, func(wire.Request) wire.Response {
		return wire.Response{Output: cni.Errorf(cni.CodeInternal, "the journal is gone").Encode(cni.NewestVersion), Failed: true}
	})
	if _, err := refusing.Everything(); err == nil || !strings.Contains(err.Error(), "the journal is gone") {
		t.Errorf("an agent that fails: %v", err)
	}
	confused := agentThat(t, func(wire.Request) wire.Response { return wire.Response{Output: []byte(`[1]`)} })
	if _, err := confused.Everything(); err == nil || !strings.Contains(err.Error(), "decode the agent's report") {
		t.Errorf("an agent that answers nonsense: %v", err)
	}
}

func TestWait(t *testing.T) {
	pending := report.Subsystem{Subsystem: "leases", State: report.Pending, Detail: "none held"}
	fine := report.Subsystem{Subsystem: "leases", State: report.Good}
	idle := report.Subsystem{Subsystem: "registry", State: report.Idle}
	var asked atomic.Int32
	n := agentThat(t, func(r wire.Request) wire.Response {
		switch {
		case r.Query == report.Sync && asked.Add(1) < 3:
			return reporting(t, report.Report{Subsystems: []report.Subsystem{idle, pending}})
		case r.Query == report.Sync:
			// Rejected objects are other people's, and are not waited for.
			return reporting(t, report.Report{Subsystems: []report.Subsystem{idle, fine}, Rejected: []report.Rejection{{Object: "file x"}}})
		}
		return wire.Response{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if missing := Wait(ctx, n); missing != nil || asked.Load() != 3 {
		t.Errorf("after %d questions %v is missing", asked.Load(), missing)
	}
}

func TestWaitSaysWhatIsMissing(t *testing.T) {
	pending := report.Subsystem{Subsystem: "leases", State: report.Pending, Detail: "none held"}
	ctx, cancel := context.WithCancel(t.Context())
	n := agentThat(t, func(wire.Request) wire.Response {
		cancel()
		return reporting(t, report.Report{Subsystems: []report.Subsystem{pending}})
	})
	if missing := Wait(ctx, n); len(missing) != 1 || missing[0] != pending {
		t.Errorf("pending: %v", missing)
	}
	if missing := Wait(ctx, Node{StateDir: filepath.Join(t.TempDir(), "none")}); cells(missing) == "" || missing[0].Subsystem != "agent" {
		t.Errorf("no agent: %v", missing)
	}
	notReady := agentThat(t, func(r wire.Request) wire.Response {
		if r.Query != "" {
			return reporting(t, report.Report{})
		}
		return wire.Response{Output: cni.Errorf(cni.CodeUnavailable, "exhausted").Encode(cni.NewestVersion), Failed: true}
	})
	if missing := Wait(ctx, notReady); !strings.Contains(cells(missing), "exhausted") {
		t.Errorf("not ready: %v", missing)
	}
}
