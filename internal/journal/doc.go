// SPDX-License-Identifier: Apache-2.0

// Package journal keeps a state durable as an append-only text file that many
// processes may write, one at a time.
//
// A State is what entries add up to (package facts). A Store is one process's
// hold on the journal: Own takes it for the process's life (the agent), Share
// locks it for each call (a CNI plugin that lives for milliseconds), and Read
// looks at it without any lock (the operator's commands).
//
// # Files in the state directory
//
//	lock                      locks and the owner's process id; never replaced
//	journal.<boot>            the journal of this boot
//	journal.<boot>.new        a compaction under way, or killed
//	journal.<boot>.corrupt-1  what a repair put aside
//
// The boot id (/proc/sys/kernel/random/boot_id) is in the name because what the
// journal describes, namespaces and interfaces, ends with the boot: a file of
// another boot can never be taken for a current one. For the same reason
// nothing is ever fsynced: the page cache survives the death of a process, and
// after the death of the machine the file does not matter.
//
// # Format
//
// Each line is eight hexadecimal digits of CRC-32 over the entry, a space, the
// entry and a newline. (The polynomial is that of IEEE 802.3, as in gzip: it is
// as fast as Castagnoli's here, and does not cost every start of a plugin
// 0.15 ms to set up tables.) The first entry is "weft-journal v1 boot=<boot>". All
// entries of one Update are appended by one write(2).
//
// A writer that was killed leaves a prefix of what it wrote: the last line may
// lack its newline. Such a torn tail was never acknowledged; the next writer
// cuts it off before it appends, and Recovered tells. Any other damage is a
// *CorruptError, also in the last line: a complete line was acknowledged, so
// dropping it would lose a fact. Nothing is dropped but by Salvage and Replace,
// which a person must ask for.
//
// # Locks
//
// Open-file-description locks (fcntl(2), F_OFD_SETLK) on bytes of "lock":
//
//	byte 0        the journal may be written; held for one transaction, or for the owner's life
//	byte 1        there is an owner
//	byte 16+hash  operations on one key (LockKey)
//
// The kernel drops them with the process, however it dies. They belong to the
// open file, not to the process: goroutines that share a Store are kept apart
// by mutexes on top, and two Stores in one process by the locks themselves.
//
// # Invariants
//
//   - An Update that returned nil survives SIGKILL of any process; one that
//     returned an error has changed neither file nor state (unless the error
//     says that the file could not be truncated).
//   - Bytes before the end of the last complete line are never modified in
//     place: compaction and repair write a new file and rename it over the old
//     one, so a lock-free reader always has a consistent file before it.
//   - A state handed to a function is the file's state at that moment, and must
//     not be kept after the function returns.
//
// The first replay of a sharing Store maps the file instead of reading it, and
// the mapping stays until the process ends: see file.mapped. So nothing but this
// package may shorten a journal; removing it is safe.
//
// The package starts no goroutines and knows nothing about attachments.
package journal
