// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Version of the protocol. It changes only when an old reader could
// misunderstand a message; unknown fields are ignored.
const Version = 1

// Bounds of a message in bytes: of a request far above any network
// configuration and far below what would hurt the agent, of an answer far above
// what an agent can say of a cluster (some 300 bytes a route).
const (
	MaxMessage = 4 << 20
	MaxAnswer  = 64 << 20
)

// Request is one CNI call as the runtime made it, or a question of the CLI.
type Request struct {
	Version int `json:"version"`
	// Query is the question; "": this is a CNI call. An agent that does not
	// know the field sees a call without CNI_COMMAND, and refuses it.
	Query  string            `json:"query,omitempty"`
	Env    map[string]string `json:"env"`              // CNI_* variables that are set
	Config json.RawMessage   `json:"config,omitempty"` // standard input: the network configuration
	// Deadline is when the shim gives up, in nanoseconds of the monotonic
	// clock, which both processes share: a request that waited in the socket of
	// an agent that hung is not served for a caller long gone.
	Deadline int64 `json:"deadline"`
	Origin
}

// Origin says where a call comes from, for those who measure. All of it may be
// missing.
type Origin struct {
	// Started is when the shim began, in Unix nanoseconds.
	Started int64 `json:"started,omitempty"`
	// TraceParent is the runtime's span as the W3C's Trace Context writes it:
	// libcni puts it into the environment (TRACEPARENT) where the runtime
	// traces.
	TraceParent string `json:"traceParent,omitempty"`
}

// Response is the plugin's whole answer, or the answer to a Query.
type Response struct {
	Version int             `json:"version"`
	Output  json.RawMessage `json:"output,omitempty"` // JSON: for standard output a result, an error object, or nothing
	Failed  bool            `json:"failed,omitempty"` // Output is an error object: exit non-zero
}

// Errors of Call, by which the shim decides what to do itself.
var (
	// ErrNoAgent: nothing listens on the socket.
	ErrNoAgent = errors.New("no agent listens")
	// ErrNoAnswer: the agent took the call and went away; what it did is not known.
	ErrNoAnswer = errors.New("the agent went away without an answer")
	// ErrDeadline: the agent did not answer in time; it may still be at work.
	ErrDeadline = errors.New("the agent did not answer in time")
)

// Left returns how long the shim will still wait.
func (r Request) Left() time.Duration { return time.Duration(r.Deadline - monotonic()) }

// monotonic reads CLOCK_MONOTONIC (clock_gettime(2)), in nanoseconds.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // never, on Linux
	}
	return ts.Nano()
}

// DecodeRequest parses and checks a request.
func DecodeRequest(raw []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(raw, &r); err != nil {
		return Request{}, fmt.Errorf("decode request: %w", err)
	}
	if r.Version != Version {
		return r, fmt.Errorf("protocol version %d: this agent speaks %d; install weft-cni and weft of one release", r.Version, Version)
	}
	return r, nil
}
