// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"strings"
	"time"

	"weft.dev/weft/internal/engine"
)

// Collected is one thing that garbage collection did.
type Collected engine.Entry

// Header implements view.Row.
func (Collected) Header() []string {
	return []string{"TIME", "ATTACHMENT", "ADDRESSES", "OBSERVED", "ACTION"}
}

// Cells implements view.Row.
func (c Collected) Cells() []string {
	action := c.Action
	if c.Error != "" {
		action += ": " + c.Error
	}
	return []string{c.Time.Format(time.RFC3339), c.Key, strings.Join(c.Addresses, ","), c.Observed, action}
}

// History returns what garbage collection did, oldest first.
func History(stateDir string) ([]Collected, error) {
	entries, err := engine.Diary(stateDir)
	rows := make([]Collected, 0, len(entries))
	for _, e := range entries {
		rows = append(rows, Collected(e))
	}
	return rows, err
}
