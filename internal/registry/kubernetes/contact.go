// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weft.dev/weft/internal/registry"
)

// contactGrace is how long a kind may be out of reach before that counts: an
// API server that is replaced by another one takes less.
const contactGrace = 5 * time.Second

// contact tells the Store whether there is contact.
type contact struct {
	store *registry.Store
	log   *slog.Logger

	mu     sync.Mutex
	order  []registry.Kind
	kinds  map[registry.Kind]*attempts
	synced bool // the Store has been told so, and that contact was not lost since
	lost   bool // the Store has been told so
	once   bool // synced before
}

// attempts is how reading one kind goes.
type attempts struct {
	complete bool // everything of the kind was read once
	err      error
	since    time.Time // of the first of the failures in succession
}

func newContact(store *registry.Store, log *slog.Logger) *contact {
	c := &contact{store: store, log: log, kinds: map[registry.Kind]*attempts{}}
	for _, f := range kinds("") {
		c.order = append(c.order, f.kind)
		c.kinds[f.kind] = &attempts{}
	}
	return c
}

// run judges what time alone changes.
func (c *contact) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.mu.Lock()
			c.judge(now)
			c.mu.Unlock()
		}
	}
}

// succeeded notes that a kind has been read completely, or that a watch goes on
// after it was.
func (c *contact) succeeded(kind registry.Kind, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.kinds[kind] = attempts{complete: true}
	c.judge(now)
}

// failed notes that an attempt failed.
func (c *contact) failed(kind registry.Kind, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.kinds[kind]
	if a.err == nil {
		a.since = now
	}
	a.err = err
	c.judge(now)
}

func (c *contact) judge(now time.Time) {
	complete := true
	var failing, undefined []error
	for _, kind := range c.order {
		a := c.kinds[kind]
		complete = complete && a.complete && a.err == nil
		switch {
		case a.err == nil:
		case errors.Is(a.err, errUndefined):
			undefined = append(undefined, a.err)
		case !c.once || now.Sub(a.since) >= contactGrace:
			failing = append(failing, a.err)
		}
	}
	switch {
	case len(undefined) > 0:
		c.loses(errors.Join(undefined...), now)
	case len(failing) > 0:
		c.loses(failing[0], now) // the others fail for the same reason, as a rule
	case complete && !c.synced:
		c.synced, c.lost, c.once = true, false, true
		c.store.Synced(now)
		c.log.Info("the Kubernetes API is in reach and read completely")
	}
}

func (c *contact) loses(err error, now time.Time) {
	if !c.lost {
		c.log.Warn("the Kubernetes API is out of reach or incomplete; retrying", "error", err)
	}
	c.synced, c.lost = false, true
	c.store.Unreachable(err, now)
}
