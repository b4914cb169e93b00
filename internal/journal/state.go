// SPDX-License-Identifier: Apache-2.0

package journal

// State is what the entries of a journal add up to.
type State interface {
	// Apply adds one entry, or returns an error and changes nothing. The
	// state may keep parts of entry.
	Apply(entry string) error
	// Entries yields entries that rebuild the state, as few as possible.
	Entries(yield func(string) bool)
	// Live returns about how many entries Entries yields.
	Live() int
}

// expecter is a State that can make room ahead of a replay.
type expecter interface{ Expect(entries int) }

// Compaction happens when a journal has compactFactor times as many lines as
// it needs, and compactSlack more. Each compaction of n live entries then
// follows at least n+256 appended ones, so it adds about one written line to
// each appended one, and replay reads at most about twice what it must.
const (
	compactFactor = 2
	compactSlack  = 256
)
