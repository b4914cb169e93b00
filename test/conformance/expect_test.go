// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Silent expects success and nothing on standard output: DEL, CHECK, GC and
// STATUS.
func (c *C) Silent(call *Call) *Call {
	if call.Code != 0 {
		c.Fatalf("%s: exit code %d, want 0: %s", call.Env["CNI_COMMAND"], call.Code, oneLine(call.Stdout))
	}
	if len(call.Stdout) != 0 {
		c.Fatalf("%s: printed %q, want nothing on standard output", call.Env["CNI_COMMAND"], oneLine(call.Stdout))
	}
	return call
}

// Added expects a successful ADD: exit code 0 and one JSON object. Its shape
// is the matter of Result.
func (c *C) Added(call *Call) *Call {
	if call.Code != 0 {
		c.Fatalf("%s: exit code %d, want 0: %s", call.Env["CNI_COMMAND"], call.Code, oneLine(call.Stdout))
	}
	var o Object
	if err := decodeOne(call.Stdout, &o); err != nil {
		c.Fatalf("%s: standard output: %v", call.Env["CNI_COMMAND"], err)
	}
	return call
}

// Failure is the error object of the specification, section "Error".
type Failure struct {
	CNIVersion string `json:"cniVersion"`
	Code       int    `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// Text is everything that the object says to a reader.
func (f Failure) Text() string { return f.Msg + " " + f.Details }

// Fails expects an error: an exit code other than 0 and, on standard output,
// one error object and nothing else. With codes, its code must be one of them.
func (c *C) Fails(call *Call, codes ...int) Failure {
	verb := call.Env["CNI_COMMAND"]
	switch {
	case call.TimedOut:
		c.Fatalf("%s: no answer within %s", verb, callLimit)
	case call.Code < 0:
		c.Fatalf("%s: ended by a signal", verb)
	case call.Code == 0:
		c.Fatalf("%s: succeeded, want an error; printed %s", verb, oneLine(call.Stdout))
	}
	f, err := parseFailure(call.Stdout)
	if err != nil {
		c.Fatalf("%s: standard output is no error object: %v", verb, err)
	}
	if len(codes) > 0 && !slices.Contains(codes, f.Code) {
		c.Errorf("%s: error code %d, want one of %v: %s", verb, f.Code, codes, f.Text())
	}
	return f
}

func parseFailure(stdout []byte) (Failure, error) {
	var f Failure
	var keys map[string]json.RawMessage
	if err := decodeOne(stdout, &keys); err != nil {
		return f, err
	}
	for key := range keys {
		if !slices.Contains([]string{"cniVersion", "code", "msg", "details"}, key) {
			return f, fmt.Errorf("key %q is not one of the specification", key)
		}
	}
	if err := json.Unmarshal(stdout, &f); err != nil {
		return f, err
	}
	if f.Code == 0 || f.Msg == "" {
		return f, fmt.Errorf("code and msg are required: %s", oneLine(stdout))
	}
	return f, nil
}

// Names expects an error to contain every one of the words.
func (c *C) Names(f Failure, words ...string) {
	for _, w := range words {
		if !strings.Contains(f.Text(), w) {
			c.Errorf("the message must name %q: %s", w, f.Text())
		}
	}
}

// decodeOne decodes exactly one JSON value.
func decodeOne(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w in %q", err, oneLine(data))
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("something follows the JSON value in %q", oneLine(data))
	}
	return nil
}

func oneLine(data []byte) string {
	const most = 600
	s := strings.Join(strings.Fields(string(data)), " ")
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// cutPrefix splits "address/length".
func cutPrefix(s string) (addr, length string, found bool) { return strings.Cut(s, "/") }

func join(words []string) string { return strings.Join(words, " ") }
