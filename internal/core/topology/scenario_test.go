// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A scenario is blocks of commands and, below a line of four hyphens, what they
// update. The command show shows everything instead.
const divider = "----"

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, commands := transcript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("got:\n%s\nwant:\n%s", got, text)
			}
			replays(t, commands)
		})
	}
}

// transcript runs a scenario and returns it with its true output, and its
// commands.
func transcript(t *testing.T, text string) (result string, commands []string) {
	t.Helper()
	w, m, held := newWorld(), NewMap(), newObjects()
	var blocks []string
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		script, _, _ := strings.Cut(block, "\n"+divider)
		show := false
		for command := range strings.SplitSeq(script, "\n") {
			switch {
			case strings.HasPrefix(command, "#"):
			case command == "show":
				show = true
			default:
				w.run(t, m, command)
				commands = append(commands, command)
			}
		}
		lines, err := fold(held, m.Updates())
		if err == nil {
			err = w.check(m, held)
		}
		if err != nil {
			t.Fatalf("after %q: %v", script, err)
		}
		if show {
			lines = slices.Concat(describe(held), describeReach(m.Reach()), describeRejected(m.Rejected()))
		}
		blocks = append(blocks, strings.Join(slices.Concat([]string{script, divider}, lines), "\n"))
	}
	return strings.Join(blocks, "\n\n") + "\n", commands
}

// replays runs the commands in other ways that must have the same end.
func replays(t *testing.T, commands []string) {
	t.Helper()
	w := newWorld()
	for _, c := range commands {
		w.run(t, NewMap(), c)
	}
	objects, reach := w.compute()
	want := slices.Concat(describe(objects), describeReach(reach))

	var twice []string
	for _, c := range commands {
		twice = append(twice, c, c)
	}
	last := lastWords(commands)
	backwards := slices.Clone(last)
	slices.Reverse(backwards)
	for _, replay := range []struct {
		name     string
		commands []string
		every    int // commands between calls of Updates
	}{
		{"split", commands, 1},
		{"in pairs", commands, 2},
		{"squashed", commands, len(commands) + 1},
		{"duplicated", twice, 1},
		{"duplicated and squashed", twice, len(twice) + 1},
		{"last words only", last, 1},
		{"reversed", backwards, 1},
		{"reversed and squashed", backwards, len(backwards) + 1},
		{"reversed, then again", slices.Concat(backwards, commands), 3},
	} {
		w, m, held := newWorld(), NewMap(), newObjects()
		for i, c := range replay.commands {
			w.run(t, m, c)
			if (i+1)%replay.every == 0 {
				if _, err := fold(held, m.Updates()); err != nil {
					t.Fatalf("%s: after %q: %v", replay.name, c, err)
				}
			}
		}
		if _, err := fold(held, m.Updates()); err != nil {
			t.Fatalf("%s: %v", replay.name, err)
		}
		if err := same(replay.name, slices.Concat(describe(held), describeReach(m.Reach())), want); err != nil {
			t.Error(err)
		}
	}
}

// lastWords keeps the last command about each thing: in any order they say the
// same.
func lastWords(commands []string) []string {
	var single []string
	for _, c := range commands {
		words := strings.Fields(c)
		if words[0] != "node" && words[0] != "forget" {
			single = append(single, c)
			continue
		}
		for _, name := range words[1:] {
			single = append(single, words[0]+" "+name)
		}
	}
	about := func(c string) string {
		words := strings.Fields(c)
		switch words[0] {
		case "self":
			return "self"
		case "node", "forget":
			return "node " + words[1]
		}
		return "lease " + words[1]
	}
	var last []string
	for i, c := range single {
		if !slices.ContainsFunc(single[i+1:], func(later string) bool { return about(later) == about(c) }) {
			last = append(last, c)
		}
	}
	return last
}
