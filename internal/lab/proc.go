// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strconv"
	"strings"
)

// process names one process for as long as the machine runs: process ids are
// reused, but not together with the start time.
type process struct {
	PID   int
	Start uint64 // field 22 of /proc/<pid>/stat: clock ticks since boot
}

// procStat is what the lab reads of /proc/<pid>/stat, see proc_pid_stat(5).
type procStat struct {
	State byte // 'Z' and 'X': dead, but not yet collected by its parent
	Start uint64
}

// parseStat parses the line. The second field is the command's name in
// parentheses and may itself hold spaces and parentheses, so fields are
// counted from the last closing one.
func parseStat(line string) (procStat, error) {
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return procStat{}, fmt.Errorf("process status %q: no command in parentheses", line)
	}
	fields := strings.Fields(line[end+1:])
	const state, start = 0, 22 - 3 // the first one here is field 3
	if len(fields) <= start || len(fields[state]) != 1 {
		return procStat{}, fmt.Errorf("process status %q: want at least 22 fields", line)
	}
	if c := fields[state][0] | 0x20; c < 'a' || c > 'z' {
		return procStat{}, fmt.Errorf("process status %q: field 3: want a letter", line)
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("process status %q: field 22: %w", line, err)
	}
	return procStat{State: fields[state][0], Start: ticks}, nil
}

func (s procStat) dead() bool { return s.State == 'Z' || s.State == 'X' }

// mount is what the lab reads of one line of /proc/self/mountinfo, see
// proc_pid_mountinfo(5).
type mount struct {
	Point  string
	FSType string
	Root   string // for a namespace: "net:[<inode>]"
}

// parseMounts parses /proc/self/mountinfo. The number of optional fields
// varies; a lone hyphen ends them.
func parseMounts(text string) ([]mount, error) {
	var mounts []mount
	for line := range strings.Lines(text) {
		head, tail, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, rest := strings.Fields(head), strings.Fields(tail)
		if !ok || len(fields) < 6 || len(rest) < 1 {
			return nil, fmt.Errorf("mount table line %q: want six fields, a hyphen and a type", line)
		}
		mounts = append(mounts, mount{Point: unescape(fields[4]), Root: unescape(fields[3]), FSType: rest[0]})
	}
	return mounts, nil
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountsBelow returns the mounts at or below dir, in the order of the table;
// a later one may cover an earlier one.
func mountsBelow(mounts []mount, dir string) []mount {
	var below []mount
	for _, m := range mounts {
		if m.Point == dir || strings.HasPrefix(m.Point, dir+"/") {
			below = append(below, m)
		}
	}
	return below
}
