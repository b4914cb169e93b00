// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// Handle speaks to the kernel on behalf of one network namespace, the one that
// Open was called in. It is safe for concurrent use.
type Handle struct {
	home *Netns

	mu   sync.Mutex
	idle []*conn // rtnetlink sockets that nobody uses just now
	shut bool

	portMu sync.Mutex // held while HostPortTable is changed, so that our own goroutines do not race
}

// maxIdle bounds the sockets kept for reuse. A socket costs 15 µs to open.
const maxIdle = 8

var errClosed = errors.New("the kernel handle is closed")

// Open returns a Handle for the namespace of the calling thread, which is the
// process' own unless the caller is inside Netns.Do.
func Open() (*Handle, error) {
	home, err := OpenNetns(threadNetns)
	if err != nil {
		return nil, err
	}
	return &Handle{home: home}, nil
}

// Close releases all sockets. Operations under way finish; later ones fail.
func (h *Handle) Close() {
	h.mu.Lock()
	idle, shut := h.idle, h.shut
	h.idle, h.shut = nil, true
	h.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
	if !shut {
		_ = h.home.Close()
	}
}

// with lends fn a socket that nobody else uses.
func (h *Handle) with(fn func(c *conn) error) error {
	c, err := h.take()
	if err != nil {
		return err
	}
	err = fn(c)
	if reusable(err) {
		h.give(c)
	} else {
		c.close()
	}
	return err
}

// reusable reports whether a socket is good for another use after err: after
// success and after a refusal of the kernel it is; after a failure of
// transport it may have answers unread that would confuse the next user.
func reusable(err error) bool {
	var refused *OpError
	return err == nil || errors.As(err, &refused)
}

func (h *Handle) take() (*conn, error) {
	h.mu.Lock()
	if h.shut {
		h.mu.Unlock()
		return nil, errClosed
	}
	if n := len(h.idle); n > 0 {
		c := h.idle[n-1]
		h.idle = h.idle[:n-1]
		h.mu.Unlock()
		return c, nil
	}
	h.mu.Unlock()
	return h.dial(unix.NETLINK_ROUTE)
}

func (h *Handle) give(c *conn) {
	h.mu.Lock()
	keep := !h.shut && len(h.idle) < maxIdle
	if keep {
		h.idle = append(h.idle, c)
	}
	h.mu.Unlock()
	if !keep {
		c.close()
	}
}

// dial opens a socket in the Handle's namespace.
func (h *Handle) dial(protocol int) (c *conn, err error) {
	err = h.inside(func() error {
		c, err = dial(protocol)
		return err
	})
	return c, err
}

// inside runs fn in the Handle's namespace. In a program that never leaves its
// namespace that is where every thread is, and no switch is needed.
func (h *Handle) inside(fn func() error) error {
	if h.home.IsHost() {
		return fn()
	}
	return h.home.Do(fn)
}
