// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Outcome is what became of a case with a subject.
type Outcome string

const (
	Pass      Outcome = "pass"
	Fail      Outcome = "FAIL"
	Deviation Outcome = "deviates" // fails, and the subject's list says why
	Absent    Outcome = "-"        // not applicable: the subject lacks what the case needs
	NotRun    Outcome = "?"        // filtered out, or the subject is not built
)

// Report collects outcomes.
type Report struct {
	mu       sync.Mutex
	subjects []*Subject
	cases    []Case
	outcomes map[string]Outcome // by subject and case
}

func newReport(subjects []*Subject, cases []Case) *Report {
	return &Report{subjects: subjects, cases: cases, outcomes: map[string]Outcome{}}
}

func (r *Report) set(s *Subject, k *Case, o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[s.Name+" "+k.ID] = o
}

func (r *Report) get(s *Subject, k *Case) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o, ok := r.outcomes[s.Name+" "+k.ID]; ok {
		return o
	}
	return NotRun
}

// totals returns one line per subject: "pass 120, deviates 7, - 12".
func (r *Report) totals(s *Subject) string {
	count := map[Outcome]int{}
	for i := range r.cases {
		count[r.get(s, &r.cases[i])]++
	}
	var parts []string
	for _, o := range []Outcome{Pass, Fail, Deviation, Absent, NotRun} {
		if count[o] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", o, count[o]))
		}
	}
	return strings.Join(parts, ", ")
}

// Text writes the table for a terminal.
func (r *Report) Text(w io.Writer) {
	fmt.Fprintf(w, "%-18s %-6s", "case", "level")
	for _, s := range r.subjects {
		fmt.Fprintf(w, " %-9s", s.Name)
	}
	fmt.Fprintln(w, " claim")
	for i := range r.cases {
		k := &r.cases[i]
		fmt.Fprintf(w, "%-18s %-6s", k.ID, k.Level)
		for _, s := range r.subjects {
			fmt.Fprintf(w, " %-9s", r.get(s, k))
		}
		fmt.Fprintln(w, " "+k.Claim)
	}
	fmt.Fprintln(w)
	for _, s := range r.subjects {
		fmt.Fprintf(w, "total %-6s %s\n", s.Name, r.totals(s))
	}
}

// Markdown writes the table and the deviations as a page.
func (r *Report) Markdown(w io.Writer) {
	fmt.Fprint(w, "# CNI conformance\n\nWritten by `go test ./test/conformance`. "+
		"\"deviates\": fails, for the reason given below. \"-\": not applicable.\n\n")
	fmt.Fprint(w, "| case | level |")
	for _, s := range r.subjects {
		fmt.Fprintf(w, " %s |", s.Name)
	}
	fmt.Fprint(w, " claim | source |\n|---|---|"+strings.Repeat("---|", len(r.subjects))+"---|---|\n")
	for i := range r.cases {
		k := &r.cases[i]
		fmt.Fprintf(w, "| %s | %s |", k.ID, k.Level)
		for _, s := range r.subjects {
			fmt.Fprintf(w, " %s |", r.get(s, k))
		}
		fmt.Fprintf(w, " %s | %s |\n", cell(k.Claim), cell(k.Spec))
	}
	fmt.Fprint(w, "\n## Totals\n\n| subject | |\n|---|---|\n")
	for _, s := range r.subjects {
		fmt.Fprintf(w, "| %s | %s |\n", s.Name, r.totals(s))
	}
	for _, s := range r.subjects {
		if len(s.Deviations) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n## Deviations of %s\n\n| case | why |\n|---|---|\n", s.Name)
		for _, id := range slices.Sorted(maps.Keys(s.Deviations)) {
			fmt.Fprintf(w, "| %s | %s |\n", id, cell(s.Deviations[id]))
		}
	}
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
