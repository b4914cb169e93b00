// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"sync"
)

// keyByte returns the byte of the lock file that stands for a key: FNV-1a,
// which every version of Weft must compute alike. Two keys on one byte would
// only wait for each other.
func keyByte(key string) int64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(key) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return byteKeys + int64(h%keySpace)
}

// turns keeps goroutines that share a lock file apart. It is keyed by the byte,
// not the key: the byte's lock can be held once.
type turns struct {
	mu    sync.Mutex
	lines map[int64]*line
}

// line is the queue of goroutines for one byte.
type line struct {
	turn  chan struct{} // holds a token while somebody has the byte
	users int           // holder and waiters
}

// enter waits for its turn.
func (t *turns) enter(ctx context.Context, at int64) error {
	t.mu.Lock()
	if t.lines == nil {
		t.lines = map[int64]*line{}
	}
	l := t.lines[at]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		t.lines[at] = l
	}
	l.users++
	t.mu.Unlock()
	select {
	case l.turn <- struct{}{}: // without asking ctx for its channel: that may cost a timer
		return nil
	default:
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		t.forget(at, l)
		return ctx.Err()
	}
}

func (t *turns) leave(at int64) {
	t.mu.Lock()
	l := t.lines[at]
	t.mu.Unlock()
	<-l.turn
	t.forget(at, l)
}

// forget drops one user, and the line with its last one.
func (t *turns) forget(at int64, l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(t.lines, at)
	}
}

// LockKey waits until no other goroutine or process works on this key, and
// keeps others from it until unlock is called. It does not exclude Update and
// View. The lock ends with the process.
//
// unlock may be called more than once and from any goroutine, but before Close.
func (s *Store[S]) LockKey(ctx context.Context, key string) (unlock func(), err error) {
	at := keyByte(key)
	if err := s.keys.enter(ctx, at); err != nil {
		return nil, fmt.Errorf("wait for another operation on %s in this process: %w", key, err)
	}
	// The owner takes the byte too: a plugin that began before the agent
	// started may still be at work under it.
	if err := s.lock.wait(ctx, at, nil); err != nil {
		s.keys.leave(at)
		return nil, fmt.Errorf("wait for another process's operation on %s: %w", key, err)
	}
	return sync.OnceFunc(func() {
		s.lock.release(at)
		s.keys.leave(at)
	}), nil
}
