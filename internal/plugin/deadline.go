// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"sync"
	"time"
)

// deadline returns a context for the whole call. It is that of
// context.WithTimeout, but the timer, and with it the runtime's poller and a
// thread, come only when somebody waits for it: most calls are over before
// anybody does, and a process that lives for 2 ms feels what they cost. end
// takes the place of the cancel function.
func deadline(timeout time.Duration) *lazyDeadline {
	return &lazyDeadline{Context: context.Background(), at: time.Now().Add(timeout)}
}

type lazyDeadline struct {
	context.Context
	at time.Time

	once   sync.Once
	real   context.Context
	cancel context.CancelFunc
}

// end releases the timer, if there is one.
func (d *lazyDeadline) end() {
	d.once.Do(func() { d.real, d.cancel = context.WithCancel(d.Context) })
	d.cancel()
}

func (d *lazyDeadline) Deadline() (time.Time, bool) { return d.at, true }

func (d *lazyDeadline) Done() <-chan struct{} { return d.timed().Done() }

func (d *lazyDeadline) Err() error {
	if time.Now().Before(d.at) {
		return nil
	}
	return d.timed().Err()
}

func (d *lazyDeadline) timed() context.Context {
	d.once.Do(func() {
		d.real, d.cancel = context.WithDeadline(d.Context, d.at)
	})
	return d.real
}
