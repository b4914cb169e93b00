// SPDX-License-Identifier: Apache-2.0

// Package view prints rows. Every view of Weft is a table: what a command
// shows and what a test compares are the same rows, as text, JSON or YAML.
package view

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// Format is how rows are printed.
type Format string

// Formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Row is one line of a table. JSON and YAML print the row itself.
type Row interface {
	Header() []string
	Cells() []string // as many as Header has; an empty one prints as "-"
}

// ParseFormat checks the value of a flag.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Table, JSON, YAML:
		return f, nil
	}
	return "", fmt.Errorf("output format %q: want table, json or yaml", s)
}

// Write prints rows in a format. A table without rows is its header alone,
// JSON and YAML an empty list.
func Write[R Row](w io.Writer, f Format, rows []R) error {
	if rows == nil {
		rows = []R{}
	}
	switch f {
	case JSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	case YAML:
		raw, err := yaml.Marshal(rows)
		if err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	default:
		return writeTable(w, rows)
	}
}

func writeTable[R Row](w io.Writer, rows []R) error {
	var none R
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(none.Header(), "\t"))
	for _, r := range rows {
		cells := r.Cells()
		for i, c := range cells {
			if c == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}
