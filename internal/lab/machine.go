// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Machine is what a lab could have left behind on the machine, as sorted
// lines, "<kind> <what>": the links of the caller's network namespace, the
// mounts (so also every pinned namespace, except those that `ip netns` keeps in
// its own directory), the files of Weft under /run, and the processes that run
// a program of Weft's.
type Machine []string

// ObserveMachine looks at the machine as it is now. Programs are recognized by
// their executable being in binDir; the calling process is left out.
func ObserveMachine(binDir string) (Machine, error) {
	var m Machine
	for _, observe := range []func() ([]string, error){
		observeLinks,
		observeMounts,
		func() ([]string, error) { return observeFiles("/run/weft*") },
		func() ([]string, error) { return observeProcesses(binDir) },
	} {
		lines, err := observe()
		if err != nil {
			return nil, fmt.Errorf("observe machine: %w", err)
		}
		m = append(m, lines...)
	}
	slices.Sort(m)
	return m, nil
}

func observeLinks() ([]string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, l := range links {
		lines = append(lines, fmt.Sprintf("link %d %s mtu %d %s", l.Index, l.Name, l.MTU, l.Flags))
	}
	return lines, nil
}

func observeMounts() ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	mounts, err := parseMounts(string(text))
	if err != nil {
		return nil, err
	}
	others := mountsBelow(mounts, "/run/netns")
	var lines []string
	for _, m := range mounts {
		if slices.Contains(others, m) {
			continue
		}
		lines = append(lines, fmt.Sprintf("mount %s %s on %s", m.FSType, m.Root, m.Point))
	}
	return lines, nil
}

func observeFiles(pattern string) ([]string, error) {
	roots, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				lines = append(lines, "file "+path)
			}
			return nil // vanished meanwhile
		})
		if err != nil {
			return nil, err
		}
	}
	return lines, nil
}

func observeProcesses(binDir string) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil || filepath.Dir(strings.TrimSuffix(exe, " (deleted)")) != filepath.Clean(binDir) {
			continue
		}
		lines = append(lines, fmt.Sprintf("process %d %s", pid, exe))
	}
	return lines, nil
}

// Diff returns how b differs from a: "+ line" for what is new, "- line" for
// what is gone.
func (m Machine) Diff(b Machine) []string {
	var diff []string
	for _, line := range b {
		if !slices.Contains(m, line) {
			diff = append(diff, "+ "+line)
		}
	}
	for _, line := range m {
		if !slices.Contains(b, line) {
			diff = append(diff, "- "+line)
		}
	}
	return diff
}
