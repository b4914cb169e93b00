// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

const statTail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"

func TestParseStat(t *testing.T) {
	for _, command := range []string{"weft", "a b", "a) Z (b", "", ")", "((", "x\ny"} {
		st, err := parseStat("42 (" + command + ")" + statTail)
		if err != nil || st.State != 'S' || st.Start != 4711 || st.dead() {
			t.Errorf("command %q: %+v, %v", command, st, err)
		}
	}
	st, err := parseStat(strings.Replace("42 (x)"+statTail, " S ", " Z ", 1))
	if err != nil || !st.dead() {
		t.Errorf("a zombie: %+v, %v", st, err)
	}
	for _, line := range []string{"", "42", "42 (x", "42 (x) S 1 2", "42 (x) SS" + statTail[2:], "42 (x)" + strings.Replace(statTail, "4711", "-1", 1)} {
		if st, err := parseStat(line); err == nil {
			t.Errorf("%q: %+v, want an error", line, st)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (weft)" + statTail)
	f.Add("42 (a) Z (b)" + statTail)
	f.Add("42 ()")
	f.Add(") S")
	f.Fuzz(func(t *testing.T, line string) {
		st, err := parseStat(line)
		if err == nil && !unicode.IsLetter(rune(st.State)) {
			t.Fatalf("%q: state %q and no error", line, st.State)
		}
	})
}

const mountTable = `22 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 22 0:4 net:[4026532177] /run/weft-lab/lab/netns/node1 rw shared:7 master:1 - nsfs nsfs rw
31 22 0:4 net:[4026532178] /run/weft-lab/lab/netns/node1 rw - nsfs nsfs rw
32 22 0:4 net:[4026532179] /run/weft-lab/lab2/netns/node1 rw - nsfs nsfs rw
33 22 0:4 / /mnt/a\040b\134c rw - tmpfs none rw
`

func TestParseMounts(t *testing.T) {
	mounts, err := parseMounts(mountTable)
	if err != nil || len(mounts) != 5 {
		t.Fatalf("%v, %v", mounts, err)
	}
	if got := mounts[4].Point; got != `/mnt/a b\c` {
		t.Errorf("escaped path %q", got)
	}
	below := mountsBelow(mounts, "/run/weft-lab/lab")
	want := []mount{
		{"/run/weft-lab/lab/netns/node1", "nsfs", "net:[4026532177]"},
		{"/run/weft-lab/lab/netns/node1", "nsfs", "net:[4026532178]"},
	}
	if !slices.Equal(below, want) {
		t.Errorf("below the lab: %v, want both layers and not the other lab's", below)
	}
	if got := mountsBelow(mounts, "/run/weft-lab/lab2/netns/node1"); len(got) != 1 {
		t.Errorf("at the path itself: %v", got)
	}
	for _, bad := range []string{"x\n", "22 1 254:0 / / rw\n", "22 1 254:0 / / rw - \n"} {
		if _, err := parseMounts(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestUnescape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.StringMatching(`[a-z/ \t\n\\0-9]{0,30}`).Draw(t, "path")
		escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(want)
		if got := unescape(escaped); got != want {
			t.Fatalf("%q escaped is %q, unescaped %q", want, escaped, got)
		}
	})
}

func FuzzParseMounts(f *testing.F) {
	f.Add(mountTable)
	f.Add(`1 2 3 / /a\04 rw - x`)
	f.Add(`1 2 3 / \ rw - x`)
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := parseMounts(text)
		if err != nil {
			return
		}
		if lines := slices.Collect(strings.Lines(text)); len(lines) != len(mounts) {
			t.Fatalf("%d mounts of %d lines", len(mounts), len(lines))
		}
	})
}

// TestStopOnlyTheRecorded: a process id that was taken over by another process
// is left alone, and stopping what is gone succeeds.
func TestStopOnlyTheRecorded(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, ok := readProcess(cmd.Process.Pid)
	if !ok || !p.alive() {
		t.Fatal("a running process is not alive")
	}
	other := process{PID: p.PID, Start: p.Start + 1}
	if err := other.stop(); err != nil || !p.alive() {
		t.Fatalf("stop of another process with the same id: %v, alive %v", err, p.alive())
	}
	if err := p.stop(); err != nil || p.alive() {
		t.Fatalf("stop: %v, alive %v", err, p.alive())
	}
	if err := p.stop(); err != nil {
		t.Fatalf("stop again: %v", err)
	}
}

// TestStopStubborn: who ignores SIGTERM gets SIGKILL after the deadline.
func TestStopStubborn(t *testing.T) {
	cmd := exec.Command("sh", "-c", `trap "" TERM; echo ready; while :; do sleep 1000; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	p, ok := readProcess(cmd.Process.Pid)
	if !ok {
		t.Fatal("not running")
	}
	if err := p.stop(); err != nil || p.alive() {
		t.Fatalf("stop: %v, alive %v", err, p.alive())
	}
}

// TestNoNamespaceNoProcesses: the caller's own namespace is never swept.
func TestNoNamespaceNoProcesses(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, _ := readProcess(cmd.Process.Pid)
	defer p.stop()
	plain := t.TempDir() + "/file"
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := stopAllIn("/proc/self/ns/net", plain, "/nonexistent"); err != nil || !p.alive() {
		t.Fatalf("sweep: %v; a process of our own namespace is alive: %v", err, p.alive())
	}
}
