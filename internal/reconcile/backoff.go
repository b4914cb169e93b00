// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"hash/fnv"
	"time"

	"weft.dev/weft/internal/core/delta"
)

const (
	firstDelay = 100 * time.Millisecond // after the first failure; doubles
	lastDelay  = 30 * time.Second

	// resyncInterval, and up to a quarter more, lies between two reads that
	// nothing calls for.
	resyncInterval = 20 * time.Second
	// doubtInterval lies at least between two reads for the sake of operations
	// that failed.
	doubtInterval = time.Second
	// noticeInterval lies at least between two reads for the sake of notices.
	noticeInterval = 100 * time.Millisecond
	// settleTime is how long a contradicting notice waits for another that
	// makes it obsolete: the echo of an operation may come in several parts,
	// and after the operation is done.
	settleTime = 20 * time.Millisecond
)

// failure is one thing that failed, in one or several attempts in a row, or that
// awaits something.
type failure struct {
	verb     delta.Verb
	err      error
	awaits   bool
	attempts int
	since    time.Time // of the first attempt
	next     time.Time // not to be tried before
}

// again records one more failed attempt.
func (f *failure) again(verb delta.Verb, err error, object string, now time.Time) {
	if f.attempts == 0 {
		f.since = now
	}
	f.attempts++
	f.verb, f.err, f.awaits = verb, err, awaits(err)
	f.next = now.Add(backoff(f.attempts, object))
}

// backoff returns how long to wait after so many failed attempts: the nominal
// delay and up to a quarter more.
func backoff(attempts int, object string) time.Duration {
	delay := lastDelay
	if doublings := attempts - 1; doublings < 9 { // 100 ms << 9 exceeds the limit
		delay = min(delay, firstDelay<<doublings)
	}
	return delay + spread(object, delay/4)
}

// spread returns a part of width that depends on the name alone. There are
// eight: what failed together is not tried together for ever, but thousands of
// objects still make few operations of many rather than many of one.
func spread(name string, width time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(name))
	return width / 8 * time.Duration(h.Sum32()%8)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest ignores a zero time.
func earliest(a, b time.Time) time.Time {
	if b.IsZero() || !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}
