// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// allCases returns every case, in the order of the report.
func allCases() []Case {
	return slices.Concat(
		versionCases(), shapeCases(), errorCases(), environmentCases(), configCases(), netnsCases(),
		addCases(), resultCases(), routeCases(), delCases(), checkCases(), tamperCases(), gcCases(), statusCases(),
		capabilityCases(), argsCases(), delegateCases(), ipamCases(), chainCases(), libcniCases(),
		machineCases(), agentCases(),
	)
}

// TestConformance runs every case against every subject.
func TestConformance(t *testing.T) {
	cases, all := allCases(), subjects()
	report := newReport(all, cases)
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) { runSubject(t, report, s, cases) })
	}
	report.Text(os.Stdout)
	if path := os.Getenv("WEFT_CONFORMANCE_REPORT"); path != "" {
		writeReport(t, report, path)
	}
}

func writeReport(t *testing.T, report *Report, path string) {
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	report.Markdown(f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func runSubject(t *testing.T, report *Report, s *Subject, cases []Case) {
	if err := s.built(); err != nil {
		t.Fatalf("%s is not built: %v", s.Name, err)
	}
	for i := range cases {
		k := &cases[i]
		if !s.Has(k.Needs) {
			report.set(s, k, Absent)
			continue
		}
		t.Run(k.ID, func(t *testing.T) {
			if !k.Serial {
				t.Parallel()
			}
			judge(t, report, s, k)
		})
	}
}

// judge runs one case and compares its outcome with the subject's list.
func judge(t *testing.T, report *Report, s *Subject, k *Case) {
	failures := runCase(s, k)
	why, known := s.Deviations[k.ID]
	switch {
	case len(failures) == 0 && known:
		report.set(s, k, Fail)
		t.Errorf("%s passes %s, but is listed to deviate (%s): remove it from the list", s.Name, k.ID, why)
	case len(failures) == 0:
		report.set(s, k, Pass)
	case known:
		report.set(s, k, Deviation)
	default:
		report.set(s, k, Fail)
		t.Errorf("%s %s: %s\n%s", k.Level, k.Spec, k.Claim, strings.Join(failures, "\n"))
	}
}

// soon is when a read that should have something gives up.
func soon() time.Time { return time.Now().Add(50 * time.Millisecond) }
