// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weft.dev/weft/internal/core/topology"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// live runs a Fabric in virtual time, and ends it.
func live(t *testing.T, test func(ctx context.Context, w *world, log *lines)) {
	synctest.Test(t, func(t *testing.T) {
		w, log := newWorld(), &lines{}
		w.now = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx, slog.New(slog.NewTextHandler(log, nil)))
		}()
		test(ctx, w, log)
		cancel()
		<-done
	})
}

// known tells the Fabric everything.
func (w *world) known(peers int) {
	for i := range peers {
		w.store.Apply(join(i)...)
	}
	w.store.Synced(time.Now())
	w.SetSelf(w.self)
	w.SetNode(w.node)
}

func TestWaitIsForWhatWasSaidBefore(t *testing.T) {
	live(t, func(ctx context.Context, w *world, _ *lines) {
		w.known(4)
		for i := range 20 {
			w.store.Apply(join(10 + i)...)
			if i%5 == 0 {
				w.self.MTU = 1400 + i
				w.SetSelf(w.self)
			}
			if err := w.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			w.same(t)
		}
	})
}

// What is said while a Step is at work is done by the next one.
func TestWaitDuringAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := running(t, 4)
		returned := make(chan error, 1)
		w.kernel.routes.touched = func(topology.RouteKey) {
			w.kernel.routes.touched = func(topology.RouteKey) {}
			w.store.Apply(join(6)...)
			go func() { returned <- w.Wait(t.Context()) }()
			synctest.Wait()
		}
		w.store.Apply(join(5)...)
		w.Step(w.now)
		synctest.Wait()
		if len(returned) > 0 {
			t.Error("returned before the change is in the kernel")
		}
		w.Step(w.now)
		if err := <-returned; err != nil {
			t.Error(err)
		}
		w.same(t)
	})
}

func TestWaitIsForTheKernel(t *testing.T) {
	live(t, func(ctx context.Context, w *world, _ *lines) {
		w.known(4)
		w.kernel.mu.Lock()
		w.kernel.routes.mode = happened
		w.kernel.mu.Unlock()
		start := time.Now()
		if err := w.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		w.same(t)
		if time.Since(start) == 0 {
			t.Error("an operation whose outcome is not known counts as done")
		}
	})
}

// What the node's own pods need can be waited for without a registry, and
// without what fails of other kinds.
func TestWaitForSomeKinds(t *testing.T) {
	live(t, func(ctx context.Context, w *world, _ *lines) {
		early, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := w.Wait(early, NAT); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before the node's objects are known: %v", err)
		}
		w.kernel.mu.Lock()
		w.kernel.fdb.mode = always
		w.kernel.mu.Unlock()
		w.SetNode(w.node)
		if err := w.Wait(ctx, NAT, Sysctls); err != nil {
			t.Errorf("without a registry: %v", err)
		}
		w.known(4)
		if err := w.Wait(ctx, NAT, Sysctls); err != nil {
			t.Errorf("with an FDB that fails: %v", err)
		}
	})
}

func TestManyWait(t *testing.T) {
	live(t, func(ctx context.Context, w *world, _ *lines) {
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if err := w.Wait(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		w.known(4)
		all.Wait()
		w.same(t)
	})
}

func TestWaitNamesWhatIsMissing(t *testing.T) {
	live(t, func(ctx context.Context, w *world, _ *lines) {
		missing := func(want ...string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			err := w.Wait(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
			for _, text := range want {
				if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %q, want %q in it", err, text)
				}
			}
		}
		missing("the registry is not read completely yet")
		w.store.Synced(time.Now())
		missing("this node's address is not known yet")
		w.SetSelf(w.self)
		missing("what this node's own pods need is not known yet")
		w.SetNode(w.node)
		if err := w.Wait(ctx); err != nil {
			t.Fatal(err)
		}

		w.kernel.mu.Lock()
		w.kernel.fdb.mode = always
		w.kernel.routes.foreign[topology.RouteKey{Dst: lease(1, false).Subnet}] = true
		w.kernel.mu.Unlock()
		for i := range 6 {
			w.store.Apply(join(i)...)
		}
		missing("add fdb ", " dev weft-vxlan: kernel says no", "and 1 more")
		w.kernel.mu.Lock()
		w.kernel.fdb.mode = works
		w.kernel.mu.Unlock()
		missing("add route 10.64.1.0/24: something foreign is in the way")
		w.kernel.mu.Lock()
		clear(w.kernel.routes.foreign)
		w.kernel.mu.Unlock()
		if err := w.Wait(ctx); err != nil {
			t.Error(err)
		}
		w.same(t)
	})
}

// What fails is logged once, and tried again at a known price.
func TestNoBusyLoopAndOneWarning(t *testing.T) {
	live(t, func(ctx context.Context, w *world, log *lines) {
		w.kernel.mu.Lock()
		w.kernel.routes.foreign[topology.RouteKey{Dst: lease(1, false).Subnet}] = true
		w.kernel.mu.Unlock()
		w.known(2)
		time.Sleep(time.Hour)
		synctest.Wait()
		w.kernel.mu.Lock()
		ops, reads := w.kernel.routes.ops, w.kernel.routes.reads
		clear(w.kernel.routes.foreign)
		w.kernel.mu.Unlock()
		t.Logf("%d operations, %d reads", ops, reads)
		if ops > 150 || reads > 250 {
			t.Errorf("%d operations, %d reads in an hour", ops, reads)
		}
		if err := w.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until that is logged
		text := log.String()
		if strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, `object="route 10.64.1.0/24" verb=add err="something foreign is in the way"`) {
			t.Errorf("log:\n%s", text)
		}
		if !strings.Contains(text, "kind=routes added=4 changed=0 deleted=0 recovered=0") || !strings.Contains(text, "kind=routes added=1 changed=0 deleted=0 recovered=1") {
			t.Errorf("log:\n%s", text)
		}
	})
}

func TestThousandsOfFailuresAreFewLines(t *testing.T) {
	live(t, func(ctx context.Context, w *world, log *lines) {
		w.kernel.mu.Lock()
		w.kernel.routes.mode = always
		w.kernel.mu.Unlock()
		w.known(100)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "\n"); n > 30 {
			t.Errorf("%d lines", n)
		}
	})
}

// A device that is lost is back soon, without anybody calling Step.
func TestRunMends(t *testing.T) {
	live(t, func(ctx context.Context, w *world, _ *lines) {
		w.known(20)
		if err := w.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		w.store.Apply(join(20)...)
		synctest.Wait()
		w.same(t)

		w.kernel.lose(w.Fabric, topology.VXLANDevice4)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		w.same(t)
		// Nobody said that these are gone: the timer finds out.
		w.kernel.mu.Lock()
		clear(w.kernel.neighbours.have)
		clear(w.kernel.nat.have)
		w.kernel.mu.Unlock()
		time.Sleep(80 * time.Second)
		synctest.Wait()
		w.same(t)
	})
}
