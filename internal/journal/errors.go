// SPDX-License-Identifier: Apache-2.0

package journal

import "fmt"

// OwnedError says that another process, normally the agent, owns the state
// directory.
type OwnedError struct {
	Dir string
	PID int // 0: not known
}

func (e *OwnedError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("state directory %s is owned by %s: send the request to that agent, stop it, or use another state directory", e.Dir, who)
}

// LostError says that the state directory was removed, or replaced by another,
// while its owner lived. The owner's locks are on a file that nobody else can
// find, so another could own the directory beside it.
type LostError struct {
	Dir string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("state directory %s was removed or replaced while this process owned it: restart the agent, it takes back every interface that exists", e.Dir)
}

// CorruptError says that a complete line of a journal is damaged.
type CorruptError struct {
	File   string
	Line   int   // from 1
	Offset int64 // in bytes, of the line's beginning
	Reason string
	Text   string // the line, shortened
	Err    error  // why the state rejected the entry; nil if it was not asked
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal %s is corrupt at line %d (byte %d): %s: %q: run `weft ipam check --repair`, which keeps the file aside and every line that is good",
		e.File, e.Line, e.Offset, e.Reason, e.Text)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// VersionError says that the journal is in a format of another Weft.
type VersionError struct {
	File   string
	Header string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("journal %s begins with %q, this version of Weft writes %q: run the version that wrote it, or drain the node and remove the file",
		e.File, e.Header, headerVersion)
}

// DirError says why a state directory cannot be used.
type DirError struct {
	Dir    string
	Reason string
}

func (e *DirError) Error() string { return fmt.Sprintf("state directory %s: %s", e.Dir, e.Reason) }

// EntryError rejects an entry that cannot be a line of the file.
type EntryError struct {
	Text   string // shortened
	Reason string
}

func (e *EntryError) Error() string { return fmt.Sprintf("journal entry %q: %s", e.Text, e.Reason) }

// TornTail is the rest of a write that its process did not live to finish. It
// was cut off; no caller had been told that it was written.
type TornTail struct {
	File   string
	Offset int64
	Text   string // shortened
}

func (t TornTail) String() string {
	return fmt.Sprintf("journal %s: cut off an unfinished line at byte %d: %q", t.File, t.Offset, t.Text)
}

// shorten cuts text to what fits into a message.
func shorten[T ~string | ~[]byte](text T) string {
	const most = 80
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}
