// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

var sample = []string{"add a", "add bb", "add ccc", "del a", "add dddd with several words"}

// TestTruncationAnywhere cuts a journal at every offset: a killed writer leaves
// just that. What is left is a prefix of the entries, and the file is as good
// as new.
func TestTruncationAnywhere(t *testing.T) {
	whole := text(sample...)
	for cut := range len(whole) + 1 {
		dir := stateDir(t)
		writeJournal(t, dir, whole[:cut])
		lines := bytes.Count(whole[:cut], []byte("\n"))
		want := newSet()
		for _, e := range sample[:max(lines-1, 0)] {
			if err := want.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		read, err := Read(dir, newSet, boot)
		if err != nil {
			t.Fatalf("cut at %d: read: %v", cut, err)
		}
		wantValues(t, read.values(), want.values()...)
		s := share(t, dir)
		wantValues(t, valuesOf(t, s), want.values()...)
		torn := s.Recovered()
		if wantTorn := cut > 0 && whole[cut-1] != '\n'; wantTorn != (len(torn) == 1) {
			t.Fatalf("cut at %d: recovered %v", cut, torn)
		}
		update(t, s, "add new")
		if got := content(t, journalOf(dir)); !bytes.Equal(got, text(append(slices.Clone(sample[:max(lines-1, 0)]), "add new")...)) {
			t.Fatalf("cut at %d: after an append the file is\n%s", cut, got)
		}
		_ = s.Close()
	}
}

// TestTornTailWhileOpen: the writer was killed while this Store had the file
// open already.
func TestTornTailWhileOpen(t *testing.T) {
	dir := stateDir(t)
	s := share(t, dir)
	update(t, s, "add a")
	writeAt := appendLine(nil, "add lost")
	f, err := os.OpenFile(journalOf(dir), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(writeAt[:len(writeAt)-1]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantValues(t, valuesOf(t, s), "a")
	torn := s.Recovered()
	if len(torn) != 1 || torn[0].Offset != int64(len(text("add a"))) || !strings.Contains(torn[0].String(), "add lost") {
		t.Fatalf("got %+v", torn)
	}
	update(t, s, "add b")
	if got := content(t, journalOf(dir)); !bytes.Equal(got, text("add a", "add b")) {
		t.Fatalf("got\n%s", got)
	}
}

// TestFlipAnyByte damages every byte but the last newline, whose loss is a torn
// tail. Nobody opens such a file, it stays as it is, and the error names the
// line.
func TestFlipAnyByte(t *testing.T) {
	whole := text(sample...)
	dir := stateDir(t)
	for i := range len(whole) - 1 {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1
		writeJournal(t, dir, damaged)
		line := bytes.Count(whole[:i], []byte("\n")) + 1
		offset := int64(bytes.LastIndexByte(whole[:i], '\n') + 1)
		s := share(t, dir)
		_, ownErr := Own(t.Context(), dir, newSet, boot)
		_, readErr := Read(dir, newSet, boot)
		for _, err := range []error{
			ownErr, readErr,
			s.View(t.Context(), func(*set) error { return nil }),
			s.Update(t.Context(), entries("add new")),
		} {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || corrupt.Line != line || corrupt.Offset != offset || corrupt.File != journalOf(dir) {
				t.Fatalf("byte %d: got %v, want line %d at %d", i, err, line, offset)
			}
			if !strings.Contains(err.Error(), "weft ipam check --repair") {
				t.Fatalf("the message does not help: %v", err)
			}
		}
		if !bytes.Equal(content(t, journalOf(dir)), damaged) {
			t.Fatalf("byte %d: the damaged file was changed", i)
		}
		_ = s.Close()
	}
}

func TestUnacceptableLines(t *testing.T) {
	rejected := text("add a", "add a", "add b")
	otherBoot := appendLine(nil, header("other"))
	version := appendLine(nil, "weft-journal v2 boot=boot")
	noHeader := appendLine(nil, "add a")
	upper := bytes.Replace(text("add a"), text("add a")[len(text()):len(text())+8], bytes.ToUpper(text("add a")[len(text()):len(text())+8]), 1)
	for name, tc := range map[string]struct {
		content []byte
		line    int // 0: a VersionError
	}{
		"the state rejects a good line": {rejected, 3},
		"header of another boot":        {otherBoot, 1},
		"header of a later version":     {version, 0},
		"no header":                     {noHeader, 1},
		"empty line":                    {append(text("add a"), '\n'), 3},
		"zeros":                         {append(text(), "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\n"...), 2},
		"upper-case checksum":           {upper, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			writeJournal(t, dir, tc.content)
			_, err := Own(t.Context(), dir, newSet, boot)
			var corrupt *CorruptError
			var foreign *VersionError
			switch {
			case tc.line == 0 && !errors.As(err, &foreign):
				t.Fatalf("got %v", err)
			case tc.line > 0 && (!errors.As(err, &corrupt) || corrupt.Line != tc.line):
				t.Fatalf("got %v, want line %d", err, tc.line)
			}
			if name == "the state rejects a good line" && !errors.Is(err, errRejected) {
				t.Fatalf("the state's reason is lost: %v", err)
			}
			if _, alive := OwnerAlive(dir); alive {
				t.Fatal("a failed Own left its locks")
			}
		})
	}
}

func TestRepair(t *testing.T) {
	dir := stateDir(t)
	damaged := text("add a", "add b", "add c", "del b")
	at := bytes.Index(damaged, []byte("add b"))
	damaged[at] = 'A'
	writeJournal(t, dir, damaged)

	good, bad, err := Salvage(dir, newSet, boot)
	if err != nil {
		t.Fatal(err)
	}
	wantValues(t, good.values(), "a", "c")
	// The deletion of what was lost is listed, not dropped in silence.
	if len(bad) != 2 || bad[0].Line != 3 || bad[1].Line != 5 || !errors.Is(&bad[1], errRejected) {
		t.Fatalf("got %+v", bad)
	}
	for n, want := range []string{".corrupt-1", ".corrupt-2"} {
		aside, err := Replace(t.Context(), dir, good, boot)
		if err != nil || aside != journalOf(dir)+want {
			t.Fatalf("got %q, %v", aside, err)
		}
		if n == 0 && !bytes.Equal(content(t, aside), damaged) {
			t.Fatal("the file kept aside is not the damaged one")
		}
		if got := content(t, journalOf(dir)); !bytes.Equal(got, text("add a", "add c")) {
			t.Fatalf("got\n%s", got)
		}
	}
	wantValues(t, valuesOf(t, own(t, dir)), "a", "c")
}

func TestReplaceWithoutJournal(t *testing.T) {
	dir := stateDir(t)
	st := newSet()
	st.has["x"] = true
	if aside, err := Replace(t.Context(), dir, st, boot); err != nil || aside != "" {
		t.Fatalf("got %q, %v", aside, err)
	}
	wantValues(t, valuesOf(t, share(t, dir)), "x")
}

// TestReplaceIsNoticed: a Store that had the old file open goes on in the new.
func TestReplaceIsNoticed(t *testing.T) {
	dir := stateDir(t)
	s := share(t, dir)
	update(t, s, "add old")
	st := newSet()
	st.has["new"] = true
	if _, err := Replace(t.Context(), dir, st, boot); err != nil {
		t.Fatal(err)
	}
	update(t, s, "add more")
	wantValues(t, valuesOf(t, s), "more", "new")
}

// FuzzReader: whatever a file holds, every reader agrees about it, nothing
// panics, and what is readable can be appended to.
func FuzzReader(f *testing.F) {
	f.Add(text(sample...))
	f.Add(text(sample...)[:40])
	f.Add(text("add a", "add a"))
	f.Add([]byte("\n\n"))
	f.Add([]byte{})
	f.Add(append(text("add a"), "00000000 add b"...))
	f.Add(appendLine(nil, "weft-journal v9"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := stateDir(t)
		writeJournal(t, dir, data)
		read, readErr := Read(dir, newSet, boot)
		good, bad, salvageErr := Salvage(dir, newSet, boot)
		s := share(t, dir)
		s.log.mapOnce = false // mappings stay, and a fuzzer would use up all that a process may have
		err := s.Update(t.Context(), entries("add new"))
		var rejected *CorruptError
		if errors.As(err, &rejected) || salvageErr != nil {
			if readErr == nil || (salvageErr == nil && len(bad) == 0) {
				t.Fatalf("update: %v, read: %v, salvage: %v, %v", err, readErr, bad, salvageErr)
			}
			if !bytes.Equal(content(t, journalOf(dir)), data) {
				t.Fatal("a file that could not be read was changed")
			}
			return
		}
		if readErr != nil || len(bad) != 0 || !slices.Equal(read.values(), good.values()) {
			t.Fatalf("update: %v, read: %v, salvage: %v", err, readErr, bad)
		}
		if again, readErr := Read(dir, newSet, boot); err == nil && (readErr != nil || !again.has["new"]) {
			t.Fatalf("what was written is not there: %v", readErr)
		}
	})
}
