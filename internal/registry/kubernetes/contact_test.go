// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"weft.dev/weft/internal/registry"
)

func TestContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := registry.NewStore()
		c := newContact(store, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		go c.run(ctx)
		defer cancel()
		want := func(what string, synced bool, err error) {
			t.Helper()
			synctest.Wait()
			store.View(func(s *registry.State) {
				if s.Synced != synced || !errors.Is(s.Err, err) {
					t.Errorf("%s: synced %v, %v; want %v, %v", what, s.Synced, s.Err, synced, err)
				}
			})
		}
		after := func(d time.Duration) time.Time {
			time.Sleep(d)
			return time.Now()
		}
		refused, other := errors.New("refused"), errors.New("other")
		missing := fmt.Errorf("ippools.weft.dev: %w", errUndefined)
		for _, kind := range c.order[1:] {
			c.succeeded(kind, after(0))
		}
		want("one is missing", false, nil)
		c.failed(registry.Node, refused, after(0))
		want("at the start a failure counts at once", false, refused)
		c.failed(registry.IPPool, missing, after(0))
		want("what is not installed comes first", false, errUndefined)
		c.succeeded(registry.IPPool, after(0))
		want("and then the rest", false, refused)
		c.succeeded(registry.Node, after(0))
		want("complete", true, nil)

		c.failed(registry.Pod, refused, after(time.Hour))
		c.failed(registry.Pod, other, after(contactGrace-2*time.Second))
		want("for a moment", true, nil)
		after(3 * time.Second)
		want("for long", true, other)
		c.failed(registry.Node, refused, after(0))
		c.succeeded(registry.Pod, after(0))
		want("another one has just failed", true, other)
		c.succeeded(registry.Node, after(0))
		want("all go on", true, nil)
		c.failed(registry.SubnetLease, missing, after(0))
		want("a definition is deleted", true, errUndefined)
	})
}
