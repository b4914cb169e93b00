// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"
)

type row struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

func (row) Header() []string  { return []string{"NAME", "COUNT"} }
func (r row) Cells() []string { return []string{r.Name, strings.Repeat("I", r.Count)} }
func text(t *testing.T, f Format, rows []row) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, f, rows); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	rows := []row{{"first", 3}, {"second", 0}}
	for f, want := range map[Format]string{
		Table: "NAME    COUNT\nfirst   III\nsecond  -\n",
		JSON:  "[\n  {\n    \"name\": \"first\",\n    \"count\": 3\n  },\n  {\n    \"name\": \"second\",\n    \"count\": 0\n  }\n]\n",
		YAML:  "- count: 3\n  name: first\n- count: 0\n  name: second\n",
	} {
		if got := text(t, f, rows); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", f, got, want)
		}
	}
}

func TestNoRows(t *testing.T) {
	for f, want := range map[Format]string{Table: "NAME  COUNT\n", JSON: "[]\n", YAML: "[]\n"} {
		if got := text(t, f, nil); got != want {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
}

func TestParseFormat(t *testing.T) {
	if f, err := ParseFormat("yaml"); err != nil || f != YAML {
		t.Errorf("%s, %v", f, err)
	}
	if _, err := ParseFormat("xml"); err == nil {
		t.Error("xml was accepted")
	}
}
