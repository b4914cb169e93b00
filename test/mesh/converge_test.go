// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"weft.dev/weft/internal/lab"
	"weft.dev/weft/internal/report"
)

// bound is how long healing may take, in which the machine's two processors
// may have other work too.
const bound = 15 * time.Second

// converged demands everything that the package's documentation says.
func (m *mesh) converged(after string) {
	m.Helper()
	took := m.eventually("kernels after "+after, bound, m.checkKernels)
	m.eventually("status after "+after, bound, m.checkStatus)
	m.eventually("packets after "+after, bound, m.checkPairs)
	m.must(m.checkKernels()) // the packets have changed nothing
	m.checkForeign()
	m.Logf("after %s: %d kernels as they must be after %d ms", after, len(m.nodes), took.Milliseconds())
}

// checkKernels compares each node's kernel with what the registry calls for.
func (m *mesh) checkKernels() error {
	b, err := m.believe()
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range m.nodeNames() {
		have, err := m.observe(node)
		if err != nil {
			return err
		}
		if diff := have.diff(m.want(node, b)); len(diff) > 0 {
			errs = append(errs, fmt.Errorf("%s:\n\t%s", node, strings.Join(diff, "\n\t")))
		}
	}
	return errors.Join(errs...)
}

// status returns the lines of `weft status` on a node. That something is wrong
// is no error.
func (m *mesh) status(node string) ([]report.Subsystem, error) {
	out, err := m.run(node, filepath.Join(m.host.BinDir, "weft"), "status", "-o", "json", "--state-dir", m.path(node, "state"))
	end := strings.LastIndex(out, "]") // what follows is on standard error
	if end < 0 {
		return nil, err
	}
	var rows []report.Subsystem
	if err := json.Unmarshal([]byte(out[:end+1]), &rows); err != nil {
		return nil, fmt.Errorf("%s: weft status: %w: %s", node, err, out)
	}
	return rows, nil
}

// checkStatus verifies that all nodes are in sync and name what they reject.
func (m *mesh) checkStatus() error {
	for _, node := range m.nodeNames() {
		rows, err := m.status(node)
		if err != nil {
			return err
		}
		named := map[string]bool{}
		kinds := 0
		for _, r := range rows {
			switch {
			case r.Subsystem == "rejected":
				object, reason, _ := strings.Cut(r.Detail, ": ")
				expected := m.expectedAs(object)
				if part := m.rejected[expected]; expected == "" || !strings.Contains(reason, part) {
					return fmt.Errorf("%s rejects %s, expected of it: %q", node, r.Detail, part)
				}
				named[expected] = true
			case !r.Settled() || r.Pending > 0:
				return fmt.Errorf("%s: %s: %s: %s %s", node, r.Subsystem, r.State, r.Detail, r.LastError)
			case strings.HasPrefix(r.Subsystem, "kernel "):
				kinds++
			}
		}
		for object := range m.rejected {
			if !named[object] {
				return fmt.Errorf("%s does not say that it rejects %s", node, object)
			}
		}
		if kinds != 7 {
			return fmt.Errorf("%s tells of %d kinds of kernel objects, want 7", node, kinds)
		}
	}
	return nil
}

// expectedAs returns the expected rejection that an object is; leases are told
// with their node, if that is known.
func (m *mesh) expectedAs(object string) string {
	for expected := range m.rejected {
		if object == expected || strings.HasPrefix(object, expected+" of ") {
			return expected
		}
	}
	return ""
}

// problem waits for a line of `weft status` that is bad and contains all parts.
func (m *mesh) problem(node, subsystem string, parts ...string) {
	m.Helper()
	m.eventually(fmt.Sprintf("%s says of %s: %q", node, subsystem, parts), bound, func() error {
		rows, err := m.status(node)
		if err != nil {
			return err
		}
		var lines []string
		for _, r := range rows {
			if r.Subsystem != subsystem {
				continue
			}
			text := fmt.Sprintf("%s %s %s", r.State, r.Detail, r.LastError)
			lines = append(lines, text)
			if r.State == report.Bad && containsAll(text, parts) {
				return nil
			}
		}
		return fmt.Errorf("it says %q", lines)
	})
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// checkPairs has all pods talk. The lab takes a node's first address for the
// one that the outside sees; where the test gave it another, the lab complains,
// in words that are known.
func (m *mesh) checkPairs() error {
	pairs, err := m.host.Check(m.Context(), m.name)
	if err != nil {
		return err
	}
	if len(pairs) == 0 {
		return lab.ErrNoPair
	}
	for _, p := range pairs {
		seen := ""
		if now, has := m.moved[m.pods[p.From].Node]; has && p.To == lab.OutsideName {
			if a, _ := addrOf(now, p.Source.Is4()); a != p.Source {
				seen = "seen as " + a.String()
			}
		}
		for _, r := range []lab.Reply{p.ICMP, p.TCP, p.UDP} {
			if r.Error != seen {
				return fmt.Errorf("%s to %s by %s: ICMP %s, TCP %s, UDP %s, want %q", p.From, p.To, p.Family, p.ICMP, p.TCP, p.UDP, seen)
			}
		}
	}
	return nil
}
