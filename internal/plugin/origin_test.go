// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/wire"
)

// The agent is told when the shim began, and where in the runtime's trace it is.
func TestShimTellsItsOrigin(t *testing.T) {
	const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, runtime := range []string{traceParent, ""} {
		dir := t.TempDir()
		socket := filepath.Join(dir, "agent.sock")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		requests := make(chan wire.Request, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				close(requests)
				return
			}
			defer conn.Close()
			raw, _ := io.ReadAll(conn)
			r, _ := wire.DecodeRequest(raw)
			answer, _ := json.Marshal(wire.Response{Version: wire.Version})
			_, _ = conn.Write(answer)
			requests <- r
		}()
		before := time.Now()
		env := map[string]string{"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "box", "CNI_IFNAME": "eth0", "TRACEPARENT": runtime}
		var out, log bytes.Buffer
		status := Main(Process{
			Name: "weft-cni", Getenv: func(key string) string { return env[key] }, Stdout: &out, Stderr: &log,
			Stdin: strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.1.0","name":"weft","type":"weft-cni","socket":%q,"stateDir":%q}`, socket, dir)),
		})
		_ = listener.Close()
		r := <-requests
		started := time.Unix(0, r.Started)
		if status != 0 || r.TraceParent != runtime || started.Before(before) || started.After(time.Now()) {
			t.Errorf("status %d, started %s, trace %q, want %s and %q; %s%s", status, started, r.TraceParent, before, runtime, &out, &log)
		}
		if r.Env["TRACEPARENT"] != "" {
			t.Errorf("the environment has %v: only CNI_* belongs there", r.Env)
		}
	}
}
