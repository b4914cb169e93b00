// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Store is one process's hold on a journal. Its methods may be called
// concurrently; transactions run one at a time.
type Store[S State] struct {
	place place
	lock  lockFile
	owner bool
	keys  turns

	// turn guards what follows: it holds a token while a transaction runs. It
	// is a channel because waiting for it must end with a context.
	turn   chan struct{}
	log    log[S]
	closed bool
}

// Own takes the state directory for the life of the process and replays its
// journal. It waits for transactions of sharing processes, as long as ctx
// lets it. It returns an *OwnedError if there is an owner already, a
// *CorruptError or *VersionError if the journal cannot be replayed, and a
// *DirError if the directory is not fit. Missing directories are made.
func Own[S State](ctx context.Context, dir string, newState func() S, opts ...Option) (*Store[S], error) {
	s, err := open(dir, newState, opts)
	if err != nil {
		return nil, err
	}
	if err := s.takeOwnership(ctx); err != nil {
		_ = s.lock.close() // the reason is in err
		return nil, err
	}
	return s, nil
}

// Share opens the state directory for transactions that lock it one by one. It
// makes missing directories, and does not look at the journal yet.
func Share[S State](dir string, newState func() S, opts ...Option) (*Store[S], error) {
	s, err := open(dir, newState, opts)
	if err == nil {
		s.log.mapOnce = true
	}
	return s, err
}

func open[S State](dir string, newState func() S, opts []Option) (*Store[S], error) {
	p, err := locate(dir, opts)
	if err != nil {
		return nil, err
	}
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	lock, err := openLock(dir, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	return &Store[S]{place: p, lock: lock, turn: make(chan struct{}, 1), log: newLog(p, newState)}, nil
}

// takeOwnership locks byte 1 before byte 0: from then on a sharing process that
// would have to wait is told that there is an owner.
func (s *Store[S]) takeOwnership(ctx context.Context) error {
	mine, err := s.lock.try(byteOwner)
	if err != nil {
		return err
	}
	if !mine {
		return &OwnedError{Dir: s.place.dir, PID: s.lock.pid()}
	}
	if err := s.lock.sign(); err != nil {
		return fmt.Errorf("leave the process id in %s: %w", s.place.dir, err)
	}
	if err := s.lock.wait(ctx, byteJournal, nil); err != nil {
		return fmt.Errorf("wait for the journal of %s: %w", s.place.dir, err)
	}
	s.owner = true
	return s.log.refresh()
}

// Path returns the journal's file.
func (s *Store[S]) Path() string { return s.place.journal() }

// Owned reports whether this Store is the owner of its state directory.
func (s *Store[S]) Owned() bool { return s.owner }

// View calls read with the state. read must not change it.
//
// A sharing Store returns an *OwnedError if another process owns the directory,
// and a *CorruptError or *VersionError if the journal cannot be replayed.
// Otherwise the error is that of read, or that ctx ended while waiting.
func (s *Store[S]) View(ctx context.Context, read func(S) error) error {
	return s.transact(ctx, func() error { return read(s.log.state) })
}

// Update calls change with the state, applies the entries that it returns and
// appends them to the journal by one write. change must not modify the state.
// If change fails, an entry is rejected or cannot be written, nothing has
// changed and the error tells which; no entries, no write. It may also return
// the errors of View.
func (s *Store[S]) Update(ctx context.Context, change func(S) ([]string, error)) error {
	return s.transact(ctx, func() error {
		entries, err := change(s.log.state)
		if err != nil || len(entries) == 0 {
			return err
		}
		if err := s.log.append(entries); err != nil {
			return err
		}
		s.log.compactIfDue()
		return nil
	})
}

// transact runs body alone, with the state up to date.
func (s *Store[S]) transact(ctx context.Context, body func() error) error {
	if err := s.takeTurn(ctx); err != nil {
		return fmt.Errorf("wait for the journal of %s in this process: %w", s.place.dir, err)
	}
	defer func() { <-s.turn }()
	if s.closed {
		return fmt.Errorf("use the journal of %s: %w", s.place.dir, os.ErrClosed)
	}
	if s.owner {
		if err := s.restoreFile(); err != nil {
			return err
		}
	} else {
		if err := s.lock.wait(ctx, byteJournal, s.lock.owned); err != nil {
			return fmt.Errorf("lock the journal of %s: %w", s.place.dir, err)
		}
		defer s.lock.release(byteJournal)
	}
	if err := s.log.refresh(); err != nil {
		return err
	}
	return body()
}

func (s *Store[S]) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}: // without asking ctx for its channel: that may cost a timer
		return nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restoreFile writes the owner's state again where somebody removed the file:
// the owner knows every fact, and without the file they would die with it.
func (s *Store[S]) restoreFile() error {
	if err := s.stillOurs(); err != nil {
		return err
	}
	if !s.log.loaded || s.log.file.fd == noFile {
		return nil
	}
	_, found, err := identify(s.place.journal())
	if err != nil || found {
		return err
	}
	if err := s.log.rewrite(); err != nil {
		return fmt.Errorf("restore the journal that was removed: %w", err)
	}
	return nil
}

// stillOurs returns a *LostError unless the lock file that this owner holds is
// the one that others would find.
func (s *Store[S]) stillOurs() error {
	mine, err := s.lock.identity()
	if err != nil {
		return err
	}
	theirs, found, err := identify(filepath.Join(s.place.dir, lockName))
	if err != nil || (found && theirs.sameFile(mine)) {
		return err
	}
	return &LostError{Dir: s.place.dir}
}

// Recovered returns the torn tails that this Store has cut off.
func (s *Store[S]) Recovered() []TornTail {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return slices.Clone(s.log.torn)
}

// CompactionErr returns why the last attempt to compact the journal failed; nil
// if it did not. The journal works on, and grows.
func (s *Store[S]) CompactionErr() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.log.compaction
}

// Close gives up all locks, after the transaction that is running. Key locks
// must have been released before.
func (s *Store[S]) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.closed {
		return nil
	}
	s.closed = true
	s.log.reset()
	if s.owner {
		// The id would mislead; but a lock decides who owns, not the id.
		_ = s.lock.truncate(0)
		s.lock.release(byteJournal)
		s.lock.release(byteOwner)
	}
	return s.lock.close()
}
