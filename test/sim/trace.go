// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"
)

// kept is how many of the last lines a failing run shows.
const kept = 50

// trace is the log of a run: its end, and a hash of all of it.
type trace struct {
	start time.Time
	last  [kept]string
	n     int
	sum   hash.Hash
	to    io.Writer // nil: nowhere
	line  []byte
}

func newTrace(start time.Time, to io.Writer) *trace {
	return &trace{start: start, sum: sha256.New(), to: to}
}

// add appends a line. Nothing in it may depend on anything but the seed.
func (t *trace) add(now time.Time, format string, args ...any) {
	t.line = fmt.Appendf(t.line[:0], "%12.6f  ", now.Sub(t.start).Seconds())
	t.line = append(fmt.Appendf(t.line, format, args...), '\n')
	t.sum.Write(t.line)
	if t.to != nil {
		fmt.Fprintf(t.to, "%s", t.line)
	}
	t.last[t.n%kept] = string(t.line)
	t.n++
}

// hash identifies the run.
func (t *trace) hash() string { return fmt.Sprintf("%x", t.sum.Sum(nil)[:8]) }

// tail returns the last lines.
func (t *trace) tail() string {
	var b strings.Builder
	for i := max(0, t.n-kept); i < t.n; i++ {
		b.WriteString(t.last[i%kept])
	}
	return b.String()
}
