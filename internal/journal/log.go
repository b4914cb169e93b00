// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"weft.dev/weft/internal/crash"
)

// log is the journal file and the state it adds up to. Its methods, but for
// absorb, are called with byte 0 of the lock file held.
//
// Invariants while loaded: state is what the first size bytes of the file add
// up to; these are lines complete lines; size is 0 if there is no file.
type log[S State] struct {
	place    place
	newState func() S

	loaded bool
	state  S
	file   file
	id     identity
	size   int64
	lines  int
	torn   []TornTail

	// mapOnce: the first replay may map the file instead of reading it. Only
	// the first, because mappings stay: a process that goes on would gather
	// them.
	mapOnce bool

	nextCheck  int // lines at which compaction is considered again
	compaction error
}

func newLog[S State](p place, newState func() S) log[S] {
	return log[S]{place: p, newState: newState, file: file{noFile}}
}

// refresh brings the state up to date with the file: others may have appended
// to it, or compacted it, which makes it another file.
func (l *log[S]) refresh() error {
	id, found, err := identify(l.place.journal())
	if err != nil {
		return err
	}
	if l.loaded && found && l.file.fd != noFile && id.sameFile(l.id) && id.size >= l.size {
		if id.size > l.size {
			return l.catchUp(id.size)
		}
		return nil
	}
	return l.open(found)
}

// open replays the whole file.
func (l *log[S]) open(found bool) error {
	l.reset()
	if !found {
		l.state, l.loaded = l.newState(), true
		return nil
	}
	f, err := openFile(l.place.journal(), unix.O_RDWR)
	if err != nil {
		return err
	}
	l.file = f
	if l.id, err = f.identity(); err != nil {
		return err
	}
	return l.replay(l.id.size)
}

// reset forgets file and state.
func (l *log[S]) reset() {
	var none S
	_ = l.file.close() // nothing is buffered in a descriptor that could be lost
	l.loaded, l.state, l.size, l.lines, l.nextCheck = false, none, 0, 0, 0
}

// replay rebuilds the state from the first bytes of the open file.
func (l *log[S]) replay(size int64) error {
	l.loaded, l.state, l.size, l.lines = false, l.newState(), 0, 0
	return l.catchUp(size)
}

// catchUp applies what lies between the known end and size, and cuts off a torn
// tail. After an error the state is not loaded.
func (l *log[S]) catchUp(size int64) error {
	l.loaded = false
	data, err := l.load(size)
	if err != nil {
		return err
	}
	end, err := l.absorb(data)
	if err != nil {
		return err
	}
	if rest := data[end:]; len(rest) > 0 {
		// Its text first: where the file is mapped, cutting it off takes
		// the memory away.
		torn := TornTail{File: l.place.journal(), Offset: l.size, Text: shorten(rest)}
		if err := l.file.truncate(l.size); err != nil {
			return fmt.Errorf("cut off an unfinished line: %w", err)
		}
		l.torn = append(l.torn, torn)
	}
	l.loaded = true
	return nil
}

func (l *log[S]) load(size int64) ([]byte, error) {
	if l.mapOnce && l.size == 0 {
		l.mapOnce = false
		// A file system may not be able to map, and a process may have no
		// mappings left; then reading tells what is really wrong, if anything.
		if data, err := l.file.mapped(size); err == nil {
			return data, nil
		}
	}
	return l.file.read(l.size, size)
}

// absorb applies the complete lines of data, which begins at the known end, and
// returns how many bytes they are. It does no I/O.
func (l *log[S]) absorb(data []byte) (int64, error) {
	if e, ok := any(l.state).(expecter); ok && l.size == 0 {
		e.Expect(estimateLines(data))
	}
	lines, end, err := scan(data, l.size, func(n int, offset int64, line []byte) error {
		return l.absorbLine(l.lines+n, offset, line)
	})
	used := end - l.size
	l.lines += lines
	l.size = end
	return used, err
}

func (l *log[S]) absorbLine(n int, offset int64, line []byte) error {
	entry, reason := entryOf(line)
	corrupt := func(reason string, err error) error {
		return &CorruptError{File: l.place.journal(), Line: n + 1, Offset: offset, Reason: reason, Text: shorten(line), Err: err}
	}
	switch {
	case reason != "":
		return corrupt(reason, nil)
	case n > 0:
		if err := l.state.Apply(entry); err != nil {
			return corrupt(err.Error(), err)
		}
		return nil
	case entry == header(l.place.boot):
		return nil
	case bytes.HasPrefix(line[crcDigits+1:], []byte(headerVersion+" ")):
		return corrupt("it names another boot than the file's name", nil)
	case bytes.HasPrefix(line[crcDigits+1:], []byte("weft-journal ")):
		return &VersionError{File: l.place.journal(), Header: shorten(entry)}
	default:
		return corrupt("it is not the header", nil)
	}
}

// estimateLines guesses the number of lines from the first ones, and rather too
// high: room that turns out too small is made, and filled, a second time.
func estimateLines(data []byte) int {
	sample := data[:min(len(data), 32<<10)]
	if len(sample) == 0 {
		return 0
	}
	lines := bytes.Count(sample, []byte{'\n'}) * len(data) / len(sample)
	return lines + lines/16
}

// append applies entries and writes them. On error neither the state nor the
// file has changed, unless the error says otherwise.
func (l *log[S]) append(entries []string) error {
	buf, err := l.lineUp(entries)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := l.state.Apply(entry); err != nil {
			return errors.Join(fmt.Errorf("apply %q: %w", shorten(entry), err), l.rebuild())
		}
	}
	if err := l.create(); err != nil {
		return errors.Join(err, l.rebuild())
	}
	crash.Point("journal-before-write")
	if err := l.file.write(buf, l.size); err != nil {
		return errors.Join(err, l.file.truncate(l.size), l.rebuild())
	}
	crash.Point("journal-after-write")
	if l.size == 0 {
		l.lines++ // the header
	}
	l.size += int64(len(buf))
	l.lines += len(entries)
	return nil
}

// lineUp returns the lines to append, with the header if they are the first.
func (l *log[S]) lineUp(entries []string) ([]byte, error) {
	room := 64
	for _, entry := range entries {
		if err := checkEntry(entry); err != nil {
			return nil, err
		}
		room += len(entry) + crcDigits + 2
	}
	buf := make([]byte, 0, room)
	if l.size == 0 {
		buf = appendLine(buf, header(l.place.boot))
	}
	for _, entry := range entries {
		buf = appendLine(buf, entry)
	}
	return buf, nil
}

// create makes the file if there is none.
func (l *log[S]) create() error {
	if l.file.fd != noFile {
		return nil
	}
	f, err := openFile(l.place.journal(), unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return err
	}
	l.file = f
	l.id, err = f.identity()
	return err
}

// rebuild makes the state what the file says, after entries were applied that
// could not be written. If that fails the next call starts from the path.
func (l *log[S]) rebuild() error {
	if l.file.fd == noFile {
		l.state = l.newState()
		return nil
	}
	if err := l.replay(l.size); err != nil {
		l.reset()
		return fmt.Errorf("rebuild the state: %w", err)
	}
	return nil
}

// compactIfDue rewrites a file that is much longer than it needs to be. That it
// cannot is no error of the caller, whose entries are written: it is kept, and
// tried again later.
func (l *log[S]) compactIfDue() {
	if l.lines <= max(compactSlack, l.nextCheck) {
		return
	}
	if most := compactFactor*l.state.Live() + compactSlack; l.lines <= most {
		// The state can shrink before then, but looking at every update
		// costs more than a somewhat longer file.
		l.nextCheck = l.lines + (most-l.lines)/4
		return
	}
	l.compaction = l.rewrite()
	l.nextCheck = 0
	if l.compaction != nil {
		l.nextCheck = l.lines + compactSlack
	}
}

// rewrite replaces the file by one that holds just the state.
func (l *log[S]) rewrite() error {
	path := l.place.journal()
	buf := appendLine(nil, header(l.place.boot))
	lines := 1
	l.state.Entries(func(entry string) bool {
		buf = appendLine(buf, entry)
		lines++
		return true
	})
	f, err := openFile(path+newSuffix, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	id, err := f.identity()
	if err == nil {
		err = f.write(buf, 0)
	}
	if err == nil {
		crash.Point("journal-before-rename")
		err = os.Rename(path+newSuffix, path)
	}
	if err != nil {
		_ = f.close()
		return errors.Join(fmt.Errorf("rewrite the journal: %w", err), os.Remove(path+newSuffix))
	}
	crash.Point("journal-after-rename")
	_ = l.file.close() // the old one; it has no name any more
	l.file, l.id, l.size, l.lines = f, id, int64(len(buf)), lines
	return nil
}
