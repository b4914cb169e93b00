// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// entry is a node in the document about several: with what its command printed, why
// it failed, or both; or with the reason for which it was not asked.
type entry struct {
	Node    string          `json:"node"`
	Output  json.RawMessage `json:"output,omitempty"`
	Error   string          `json:"error,omitempty"`
	Skipped string          `json:"skipped,omitempty"`
}

// printDocument prints one document with the answers of all nodes, when all of
// them are there.
func (c *cluster) printDocument(answers []*answer, command Command, stdout, stderr io.Writer) error {
	t := tally{pod: command.Pod}
	for _, a := range answers {
		<-a.done
		t.count(a)
		a.printRemarks(stderr)
	}
	if t.banned() {
		return c.explain(t.ban)
	}
	entries := []entry{}
	for _, a := range answers {
		if t.answered == 0 || t.pod == "" || !a.refused() { // who does not know the pod is of interest only if nobody does
			entries = append(entries, entryOf(a))
		}
	}
	if err := writeDocument(stdout, command.Format, entries); err != nil {
		return err
	}
	return t.conclude(c, stderr)
}

func entryOf(a *answer) entry {
	e := entry{Node: a.agent.node, Output: embedded(a), Error: a.failure()}
	if errors.Is(a.err, errNoPod) {
		e.Skipped = noAgent
	}
	return e
}

// embedded returns what a command printed as a JSON value: itself, or a string if
// it is not one, which few commands print. What was cut off is no value.
func embedded(a *answer) json.RawMessage {
	text := bytes.ToValidUTF8(bytes.TrimSpace(a.stdout.take()), []byte("\ufffd"))
	switch {
	case len(text) == 0:
		return nil
	case json.Valid(text):
		return text
	case a.err != nil && !a.refused():
		return nil
	}
	quoted, _ := json.Marshal(string(text)) // a string has no error
	return quoted
}

func writeDocument(w io.Writer, format string, entries []entry) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(entries); err != nil {
		return err
	}
	document := text.Bytes()
	if format == "yaml" {
		var err error
		if document, err = yaml.JSONToYAML(printable(document)); err != nil {
			return err
		}
	}
	_, err := w.Write(document)
	return err
}

// printable escapes what JSON may have in a string, and YAML nowhere: control
// characters and the like (YAML 1.2, production 1, c-printable).
func printable(document []byte) []byte {
	var escaped []byte
	for _, r := range string(document) {
		if r >= 0x7f && r <= 0x9f || r == 0xfeff || r == 0xfffe || r == 0xffff {
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		} else {
			escaped = utf8.AppendRune(escaped, r)
		}
	}
	return escaped
}
