// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weft.dev/weft/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serving runs a server with an answer until the test ends.
func serving(t *testing.T, answer answerFunc) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent.sock")
	s, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { s.serve(ctx, answer) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return socket
}

func soon() time.Time { return time.Now().Add(10 * time.Second) }

func TestConversation(t *testing.T) {
	big := `"` + strings.Repeat("x", 1<<20) + `"`
	socket := serving(t, func(ctx context.Context, r wire.Request, netns int) (wire.Response, func()) {
		if _, ok := ctx.Deadline(); !ok || r.Left() <= 0 {
			t.Error("the call has no deadline")
		}
		var st [2]os.FileInfo
		if netns >= 0 {
			f := os.NewFile(uintptr(netns), "received")
			st[0], _ = f.Stat()
			st[1], _ = os.Stat("/proc/self/ns/net")
			_ = f.Close()
			if !os.SameFile(st[0], st[1]) {
				t.Error("another file arrived than was sent")
			}
		}
		return wire.Response{Output: []byte(`["` + r.Env["CNI_COMMAND"] + `",` + string(r.Config) + `]`), Failed: netns < 0}, nil
	})
	ns, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	request := wire.Request{Env: map[string]string{"CNI_COMMAND": "ADD"}, Config: []byte(big)}
	resp, err := wire.Call(socket, request, int(ns.Fd()), soon())
	if err != nil || resp.Failed || string(resp.Output) != `["ADD",`+big+`]` {
		t.Errorf("with a namespace: %d bytes, failed %v, %v", len(resp.Output), resp.Failed, err)
	}
	resp, err = wire.Call(socket, wire.Request{Config: []byte("1")}, -1, soon())
	if err != nil || !resp.Failed || string(resp.Output) != `["",1]` {
		t.Errorf("without: %+v, %v", resp, err)
	}
}

func TestSocketIsForTheOwnerOnly(t *testing.T) {
	socket := serving(t, func(context.Context, wire.Request, int) (wire.Response, func()) { return wire.Response{}, nil })
	st, err := os.Stat(socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestListenRefusesWhatItMustNotReplace(t *testing.T) {
	living := serving(t, func(context.Context, wire.Request, int) (wire.Response, func()) { return wire.Response{}, nil })
	if _, err := listen(living); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a living socket: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(file); err == nil {
		t.Error("a regular file was taken for a socket")
	}
	if kept, _ := os.ReadFile(file); string(kept) != "keep" {
		t.Error("the file was changed")
	}
}

func TestListenReplacesADeadSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	s, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.listener.Close()
}

func TestCallWithoutAgent(t *testing.T) {
	dir := t.TempDir()
	if _, err := wire.Call(filepath.Join(dir, "none"), wire.Request{}, -1, soon()); !errors.Is(err, wire.ErrNoAgent) {
		t.Errorf("no socket: %v", err)
	}
	silent, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "silent"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	start := time.Now()
	_, err = wire.Call(filepath.Join(dir, "silent"), wire.Request{}, -1, start.Add(200*time.Millisecond))
	if took := time.Since(start); !errors.Is(err, wire.ErrDeadline) || took > 5*time.Second {
		t.Errorf("an agent that hangs: %v after %s", err, took)
	}
	var closing sync.WaitGroup
	closing.Go(func() {
		if conn, err := silent.Accept(); err == nil {
			_ = conn.Close() // the connection that was left
		}
		if conn, err := silent.Accept(); err == nil {
			_ = conn.Close()
		}
	})
	if _, err := wire.Call(filepath.Join(dir, "silent"), wire.Request{}, -1, soon()); !errors.Is(err, wire.ErrNoAnswer) {
		t.Errorf("an agent that goes away: %v", err)
	}
	closing.Wait()
}

func TestRequestOfAnotherProtocol(t *testing.T) {
	socket := serving(t, func(context.Context, wire.Request, int) (wire.Response, func()) {
		t.Error("a request that cannot be understood was answered")
		return wire.Response{}, nil
	})
	for _, text := range []string{`{"version":99}`, `nonsense`, ``} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text))
		_ = conn.CloseWrite()
		answer := make([]byte, 4096)
		n, _ := conn.Read(answer)
		if !strings.Contains(string(answer[:n]), `"failed":true`) {
			t.Errorf("%q was answered by %q", text, answer[:n])
		}
		_ = conn.Close()
	}
}

// Stopping waits for the calls in flight.
func TestStopWaitsForCalls(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	s, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	entered, release := make(chan struct{}), make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		s.serve(ctx, func(context.Context, wire.Request, int) (wire.Response, func()) {
			close(entered)
			<-release
			return wire.Response{Output: []byte(`"done"`)}, nil
		})
		close(stopped)
	}()
	answered := make(chan wire.Response)
	go func() {
		resp, _ := wire.Call(socket, wire.Request{}, -1, soon())
		answered <- resp
	}()
	<-entered
	cancel()
	select {
	case <-stopped:
		t.Error("the server stopped with a call in flight")
	default:
	}
	close(release)
	if resp := <-answered; string(resp.Output) != `"done"` {
		t.Errorf("the call in flight got %+v", resp)
	}
	<-stopped
}
