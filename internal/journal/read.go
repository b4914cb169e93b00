// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// readAttempts bounds how often Read starts anew because a writer was at work.
const readAttempts = 8

// Read returns the state as the file has it, without waiting for anybody: for
// commands that look. It takes no notice of a line that is being written.
// Where there is no directory or no journal of this boot, the state is empty.
// It returns a *CorruptError or *VersionError like View.
func Read[S State](dir string, newState func() S, opts ...Option) (S, error) {
	var none S
	p, err := locate(dir, opts)
	if err != nil {
		return none, err
	}
	return readPlace(p, newState)
}

func readPlace[S State](p place, newState func() S) (S, error) {
	var none S
	var seen []byte
	var last error
	for range readAttempts {
		data, id, err := load(p)
		if err != nil {
			return none, err
		}
		l := newLog(p, newState)
		l.state = newState()
		_, err = l.absorb(data)
		// What a writer takes back (its disk was full) and writes anew can
		// be caught half-way. Damage stays; such a sight does not.
		if err != nil && last != nil && bytes.Equal(data, seen) {
			return none, err
		}
		now, found, statErr := identify(p.journal())
		if statErr != nil {
			return none, statErr
		}
		compacted := found && !now.sameFile(id)
		if err == nil && !compacted {
			return l.state, nil
		}
		seen, last = data, err
		if last == nil {
			last = errCompacting
		}
	}
	return none, fmt.Errorf("read journal %s without a lock, %d times: %w", p.journal(), readAttempts, last)
}

var errCompacting = errors.New("it was replaced meanwhile, each time")

// load returns the journal's bytes as they are; none if there is no file.
func load(p place) ([]byte, identity, error) {
	f, err := openFile(p.journal(), unix.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, identity{}, nil
	}
	if err != nil {
		return nil, identity{}, err
	}
	defer func() { _ = f.close() }()
	id, err := f.identity()
	if err != nil {
		return nil, identity{}, err
	}
	data, err := f.read(0, id.size)
	return data, id, err
}

// Salvage replays every line that is good and returns what is wrong with the
// others. An entry that depends on a damaged one is rejected in its turn, and
// listed too. It changes nothing; see Replace.
func Salvage[S State](dir string, newState func() S, opts ...Option) (S, []CorruptError, error) {
	var none S
	p, err := locate(dir, opts)
	if err != nil {
		return none, nil, err
	}
	return salvagePlace(p, newState)
}

func salvagePlace[S State](p place, newState func() S) (S, []CorruptError, error) {
	var none S
	data, _, err := load(p)
	if err != nil {
		return none, nil, err
	}
	l := newLog(p, newState)
	l.state = newState()
	var bad []CorruptError
	_, _, err = scan(data, 0, func(n int, offset int64, line []byte) error {
		err := l.absorbLine(n, offset, line)
		var corrupt *CorruptError
		if errors.As(err, &corrupt) {
			bad = append(bad, *corrupt)
			return nil
		}
		return err
	})
	if err != nil {
		return none, nil, err
	}
	return l.state, bad, nil
}

// Replace makes state the content of the journal, and returns the path under
// which it kept the old file aside, "" if there was none. At every moment
// there is one journal, the old or the new. It returns an *OwnedError if there
// is an owner, whose state would not follow.
func Replace[S State](ctx context.Context, dir string, state S, opts ...Option) (aside string, err error) {
	s, err := Share(dir, func() S { return state }, opts...)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	if err := s.lock.wait(ctx, byteJournal, s.lock.owned); err != nil {
		return "", fmt.Errorf("lock the journal of %s: %w", dir, err)
	}
	defer s.lock.release(byteJournal)
	if aside, err = s.place.putAside(); err != nil {
		return "", err
	}
	s.log.state = state
	return aside, s.log.rewrite()
}

// putAside gives the journal a second name.
func (p place) putAside() (string, error) {
	for n := 1; ; n++ {
		aside := p.journal() + asideInfix + strconv.Itoa(n)
		switch err := os.Link(p.journal(), aside); {
		case err == nil:
			return aside, nil
		case errors.Is(err, os.ErrNotExist):
			return "", nil
		case !errors.Is(err, os.ErrExist):
			return "", fmt.Errorf("put the corrupt journal aside: %w", err)
		}
	}
}
