// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/reconcile"
)

// await lets somebody have a key of the routes, or let it go.
func (w *world) await(k topology.RouteKey, awaited bool) {
	w.kernel.mu.Lock()
	defer w.kernel.mu.Unlock()
	w.kernel.routes.awaited[k] = awaited
}

func (w *world) routes() reconcile.Status {
	kinds := w.Status()
	return kinds[slices.IndexFunc(kinds, func(s reconcile.Status) bool { return s.Kind == Routes })]
}

// What a pod's former sandbox has is no failure. It is told once, and made in the
// moment in which the sandbox is gone, however long that took.
func TestRouteAwaitsAPod(t *testing.T) {
	live(t, func(ctx context.Context, w *world, log *lines) {
		k := topology.RouteKey{Dst: lease(1, false).Subnet}
		w.await(k, true)
		w.known(2)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s := w.routes()
		if len(s.Failing) > 0 || len(s.Awaiting) != 1 || s.Pending != 1 || s.LastError != nil || s.Awaiting[0].Object != "route 10.64.1.0/24" {
			t.Errorf("status %+v", s)
		}
		objects := w.Objects(Routes)
		if o := objects[slices.IndexFunc(objects, func(o reconcile.Object) bool { return o.Key == k })]; o.State != reconcile.Pending || !errors.Is(o.Err, awaiting{}) {
			t.Errorf("object %+v", o)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := w.Wait(short); err == nil || !strings.Contains(err.Error(), "add route 10.64.1.0/24: a former sandbox has it") {
			t.Errorf("error %v", err)
		}

		w.Noticed(Pods, nil, nil, false) // another pod's
		synctest.Wait()
		w.await(k, false)
		start := time.Now()
		w.Noticed(Pods, nil, nil, false)
		synctest.Wait()
		w.same(t)
		if waited := time.Since(start); waited > 0 {
			t.Errorf("made after %s", waited)
		}
		text := log.String()
		if strings.Contains(text, "WARN") || strings.Count(text, `msg="network operation waits" object="route 10.64.1.0/24" verb=add for="a former sandbox has it"`) != 1 ||
			!strings.Contains(text, "kind=routes added=1 changed=0 deleted=0 recovered=0") {
			t.Errorf("log:\n%s", text)
		}
	})
}

// The news may come while the operation that finds the pod's route is at work.
func TestPodGoesDuringAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t, 2)
		k := topology.RouteKey{Dst: lease(5, false).Subnet}
		w.await(k, true)
		other := topology.RouteKey{Dst: lease(6, false).Subnet} // made after k, in the same call
		w.kernel.routes.touched = func(touched topology.RouteKey) {
			if touched == other {
				w.kernel.routes.awaited[k] = false
				w.Noticed(Pods, nil, nil, false)
			}
		}
		w.store.Apply(append(join(5), join(6)...)...)
		w.Step(w.now)
		if w.differs() == "" {
			t.Fatal("the first Step has not found the pod's route")
		}
		select {
		case <-w.wake:
		default:
			t.Error("no Step is called for")
		}
		w.Step(w.now)
		w.same(t)
	})
}

// Pods that come and go cost nothing where no route awaits one.
func TestPodsGoUnnoticed(t *testing.T) {
	w := running(t, 4)
	for len(w.wake) > 0 {
		<-w.wake
	}
	w.Noticed(Pods, nil, nil, false)
	if len(w.wake) > 0 {
		t.Error("a Step is called for")
	}
}

// If notices were lost, one of a pod may be among them.
func TestLostNoticeOfAPod(t *testing.T) {
	w := running(t, 2)
	k := topology.RouteKey{Dst: lease(5, false).Subnet}
	w.await(k, true)
	w.store.Apply(join(5)...)
	w.run(time.Hour)
	w.await(k, false)
	w.Noticed("", nil, nil, false)
	w.Step(w.now)
	w.same(t)
}

// What begins to fail after it had to wait is a failure like any other.
func TestAwaitedBecomesForeign(t *testing.T) {
	live(t, func(_ context.Context, w *world, log *lines) {
		k := topology.RouteKey{Dst: lease(1, false).Subnet}
		w.await(k, true)
		w.known(2)
		synctest.Wait()
		w.kernel.mu.Lock()
		w.kernel.routes.awaited[k], w.kernel.routes.foreign[k] = false, true
		w.kernel.mu.Unlock()
		w.Noticed(Pods, nil, nil, false)
		synctest.Wait()
		if s := w.routes(); len(s.Failing) != 1 || len(s.Awaiting) > 0 || s.LastError == nil {
			t.Errorf("status %+v", s)
		}
		if text := log.String(); strings.Count(text, "WARN") != 1 {
			t.Errorf("log:\n%s", text)
		}
	})
}

// Whoever waits for his own routes waits for no other, be it failing, awaiting or
// of unknown state.
func TestWaitRoutes(t *testing.T) {
	live(t, func(ctx context.Context, w *world, _ *lines) {
		key := func(i int) topology.RouteKey { return topology.RouteKey{Dst: lease(i, false).Subnet} }
		w.kernel.mu.Lock()
		w.kernel.routes.foreign[key(2)], w.kernel.routes.awaited[key(3)] = true, true
		w.kernel.mu.Unlock()
		fails := func(want string, keys ...topology.RouteKey) {
			t.Helper()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			err := w.WaitRoutes(ctx, keys...)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		done := func(keys ...topology.RouteKey) {
			t.Helper()
			if err := w.WaitRoutes(ctx, keys...); err != nil {
				t.Error(err)
			}
		}
		fails("routes: to be read from the kernel", key(1))
		w.SetNode(w.node)
		fails("route 10.64.1.0/24: to be read from the kernel", key(1))
		w.known(1)
		done(key(1)) // as it is wanted: not there
		for i := range 4 {
			w.store.Apply(join(i)...)
		}
		done(key(1), key(9))
		w.kernel.mu.Lock()
		_, there := w.kernel.routes.have[key(1)]
		w.kernel.mu.Unlock()
		if !there {
			t.Error("the route is not there")
		}
		fails("add route 10.64.2.0/24: something foreign is in the way", key(1), key(2))
		fails("add route 10.64.3.0/24: a former sandbox has it", key(3))
		w.store.Apply(gone(holds(lease(1, false))), gone(holds(lease(2, false))))
		done(key(1), key(2))
		w.kernel.mu.Lock()
		_, there = w.kernel.routes.have[key(1)]
		w.kernel.mu.Unlock()
		if there {
			t.Error("the route is still there")
		}
	})
}
