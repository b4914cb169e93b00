// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
)

// The fake sandboxes are files: StatNetns only wants device and inode.
func (b *bench) fakeSandbox(name string) (path string, id kernel.NetnsID) {
	b.t.Helper()
	path = filepath.Join(b.t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
	id, err := kernel.StatNetns(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return path, id
}

// attached records a complete attachment in a sandbox that the test can end.
func (b *bench) attached(container string) (sandboxPath string) {
	b.t.Helper()
	path, id := b.fakeSandbox(container)
	r := b.request(container)
	a, err := b.Add(ctx, r)
	if err != nil {
		b.t.Fatal(err)
	}
	// The record says which namespace it is; make it say the fake one.
	err = b.store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		d := facts.NewDetail(a.Spec)
		d.Netns, d.NetnsID, d.Masquerade, d.Pool = path, facts.NetnsID(id), true, r.Network.Pool.Subnets()
		rec, _ := f.Get(r.Key)
		intent, err := facts.EncodeIntent(b.now(), r.Key, facts.Veth, rec.Addresses, d)
		if err != nil {
			return nil, err
		}
		complete, err := facts.EncodeComplete(b.now(), r.Key)
		return []string{intent, complete}, err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return path
}

// end lets a sandbox die: its path and, as the kernel would, its interface.
func (b *bench) end(container, path string) {
	b.t.Helper()
	if err := os.Remove(path); err != nil {
		b.t.Fatal(err)
	}
	delete(b.kernel.links, key(container).HostIfname())
}

func (b *bench) sweep() []string {
	b.t.Helper()
	findings, err := b.Sweep(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	var actions []string
	for _, f := range findings {
		actions = append(actions, f.Key.ContainerID+" "+f.Action)
	}
	return actions
}

func wantActions(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("garbage collection did %v, want %v", got, want)
	}
}

func TestSweepReleasesTheDeadAtTheSecondLook(t *testing.T) {
	b := newBench(t)
	path := b.attached("c1")
	wantActions(t, b.sweep())
	b.end("c1", path)
	wantActions(t, b.sweep(), "c1 suspected")
	b.clock = b.clock.Add(Grace - time.Millisecond)
	wantActions(t, b.sweep())
	if len(b.used()) != 1 {
		t.Fatal("released before the grace was over")
	}
	b.clock = b.clock.Add(time.Millisecond)
	wantActions(t, b.sweep(), "c1 released")
	b.clean()
	wantActions(t, b.sweep())
}

func TestSweepClearsASuspicion(t *testing.T) {
	b := newBench(t)
	path := b.attached("c1")
	hidden := path + ".hidden"
	plan := b.kernel.links[key("c1").HostIfname()]
	if err := os.Rename(path, hidden); err != nil {
		t.Fatal(err)
	}
	delete(b.kernel.links, plan.HostIfname)
	wantActions(t, b.sweep(), "c1 suspected")
	if err := os.Rename(hidden, path); err != nil {
		t.Fatal(err)
	}
	b.kernel.links[plan.HostIfname] = plan
	wantActions(t, b.sweep(), "c1 cleared")
	b.clock = b.clock.Add(time.Hour)
	wantActions(t, b.sweep())
}

// One witness is not enough, in either direction.
func TestSweepKeepsWhatOneWitnessSpeaksFor(t *testing.T) {
	t.Run("the path is gone, the interface exists", func(t *testing.T) {
		b := newBench(t)
		if err := os.Remove(b.attached("c1")); err != nil {
			t.Fatal(err)
		}
		wantActions(t, b.sweep())
	})
	t.Run("the interface is gone, the sandbox lives", func(t *testing.T) {
		b := newBench(t)
		b.attached("c1")
		delete(b.kernel.links, key("c1").HostIfname())
		wantActions(t, b.sweep())
	})
	t.Run("the path leads to another namespace", func(t *testing.T) {
		b := newBench(t)
		path := b.attached("c1")
		b.end("c1", path)
		// A file made at once might get the inode that was freed.
		other, _ := b.fakeSandbox("other")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(other, path); err != nil {
			t.Fatal(err)
		}
		wantActions(t, b.sweep(), "c1 suspected")
	})
}

func TestSweepUndoesWhatDeadProcessesLeft(t *testing.T) {
	b := newBench(t)
	b.kernel.fail = func(op string) failure {
		switch op {
		case "attach":
			return failAfter
		case "detach":
			return failBefore
		}
		return succeed
	}
	if _, err := b.Add(ctx, b.request("c1")); err == nil {
		t.Fatal("ADD succeeded")
	}
	b.kernel.fail = func(string) failure { return succeed }
	wantActions(t, b.sweep(), "c1 undone")
	b.clean()
}

func TestSweepLeavesCallsInFlightAlone(t *testing.T) {
	b := newBench(t)
	entry, err := facts.EncodeIntent(b.now(), key("c1"), facts.Veth, nil, facts.Detail{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.append1(ctx, entry, nil); err != nil {
		t.Fatal(err)
	}
	unlock, err := b.store.LockKey(ctx, key("c1").String())
	if err != nil {
		t.Fatal(err)
	}
	wantActions(t, b.sweep())
	unlock()
	wantActions(t, b.sweep(), "c1 undone")
}

// An interface with our mark and no record is a pod that runs: its address is
// taken, not its interface removed.
func TestSweepAdoptsInterfacesWithoutRecord(t *testing.T) {
	b := newBench(t)
	a, err := b.Add(ctx, b.request("c1"))
	if err != nil {
		t.Fatal(err)
	}
	fresh := newBench(t)
	fresh.Instance = b.Instance
	fresh.kernel = b.kernel
	fresh.Kernel = b.kernel
	wantActions(t, fresh.sweep(), "c1 adopted")
	if used := fresh.used(); len(used) != 1 || used[0] != a.Spec.Addresses[0].Addr {
		t.Errorf("used after adoption: %v", used)
	}
	wantActions(t, fresh.sweep())
	if err := fresh.Del(ctx, key("c1"), nil); err != nil {
		t.Fatal(err)
	}
	if len(fresh.used()) != 0 || len(b.kernel.links) != 0 {
		t.Error("DEL of an adopted attachment left something")
	}
}

func TestSweepLeavesOtherInstancesAlone(t *testing.T) {
	b := newBench(t)
	if _, err := b.Add(ctx, b.request("c1")); err != nil {
		t.Fatal(err)
	}
	other := newBench(t)
	other.Kernel = b.kernel
	wantActions(t, other.sweep())
}

func TestCollect(t *testing.T) {
	none := func(attach.Key) bool { return false }
	all := func(attach.Key) bool { return true }
	cases := []struct {
		name   string
		listed func(attach.Key) bool
		kill   bool // the sandbox dies
		want   string
	}{
		{"alive and listed", all, false, ""},
		{"alive and not listed", none, false, ""},
		{"alive, no list", nil, false, ""},
		{"dead and listed", all, true, ""},
		{"dead and not listed", none, true, "released"},
		{"dead, no list", nil, true, "released"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			path := b.attached("c1")
			if c.kill {
				b.end("c1", path)
			}
			for range 3 { // idempotent
				findings, err := b.Collect(ctx, "net", facts.Veth, c.listed)
				if err != nil {
					t.Fatal(err)
				}
				if c.want == "" && len(findings) > 0 || c.want != "" && (len(findings) != 1 || findings[0].Action != c.want) {
					t.Errorf("findings %v, want %q", findings, c.want)
				}
				if c.want != "" {
					break
				}
			}
			if c.want == "released" {
				b.clean()
			} else if len(b.used()) != 1 {
				t.Error("the address was freed")
			}
		})
	}
}

func TestCollectKeepsToItsNetworkAndKind(t *testing.T) {
	b := newBench(t)
	b.end("c1", b.attached("c1"))
	for _, f := range []func() ([]Finding, error){
		func() ([]Finding, error) { return b.Collect(ctx, "other", facts.Veth, nil) },
		func() ([]Finding, error) { return b.Collect(ctx, "net", facts.IPAM, nil) },
	} {
		if findings, err := f(); err != nil || len(findings) != 0 {
			t.Errorf("findings %v, %v", findings, err)
		}
	}
}

func TestCollectGoesOnAfterAFailure(t *testing.T) {
	b := newBench(t)
	for _, c := range []string{"c1", "c2"} {
		b.end(c, b.attached(c))
	}
	first := true
	b.kernel.fail = func(op string) failure {
		if op == "detach" && first {
			first = false
			return failBefore
		}
		return succeed
	}
	if _, err := b.Collect(ctx, "net", facts.Veth, nil); !errors.Is(err, errInjected) {
		t.Errorf("error %v", err)
	}
	if len(b.used()) != 1 {
		t.Errorf("used %v: the second must have been released", b.used())
	}
}

func TestDiaryTellsWhatWasDone(t *testing.T) {
	b := newBench(t)
	b.end("c1", b.attached("c1"))
	b.sweep()
	b.clock = b.clock.Add(Grace)
	b.sweep()
	entries, err := Diary(b.Instance)
	if err != nil || len(entries) != 2 || entries[0].Action != "suspected" || entries[1].Action != "released" || entries[1].Addresses[0] != "10.0.0.2" {
		t.Errorf("diary %+v, %v", entries, err)
	}
}

func TestForgetBootsReleasesDelegatedAddresses(t *testing.T) {
	b := newBench(t)
	f := facts.New()
	entry, err := facts.EncodeIntent(1, key("old"), facts.Veth, nil, facts.Detail{Delegate: &facts.Delegate{Type: "other", Config: []byte(`{}`)}})
	if err == nil {
		err = f.Apply(entry)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Replace(ctx, b.Instance+"-old", f, journal.WithBoot("11111111-2222-3333-4444-555555555555")); err != nil {
		t.Fatal(err)
	}
	moveJournals(t, b.Instance+"-old", b.Instance)
	b.delegates.held[key("old")] = true
	b.delegates.err = errInjected
	if _, err := b.ForgetBoots(ctx); !errors.Is(err, errInjected) {
		t.Fatalf("with a failing delegate: %v", err)
	}
	b.delegates.err = nil
	findings, err := b.ForgetBoots(ctx)
	if err != nil || len(findings) != 1 || len(b.delegates.held) != 0 {
		t.Fatalf("findings %v, %v, held %v", findings, err, b.delegates.held)
	}
	if files, err := journal.Stale(b.Instance); err != nil || len(files) != 0 {
		t.Errorf("files left: %v, %v", files, err)
	}
}

func moveJournals(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "journal.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no journal in %s: %v", from, err)
	}
	for _, f := range files {
		if err := os.Rename(f, filepath.Join(to, filepath.Base(f))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReaperRemovesManyAtOnce(t *testing.T) {
	b := newBench(t)
	b.Node = func() kernel.Node { return kernel.Node{} }
	var failed []error
	b.Reaper = NewReaper(func(_ attach.Key, err error) { failed = append(failed, err) })
	for _, c := range []string{"c1", "c2", "c3"} {
		if _, err := b.Add(ctx, b.request(c)); err != nil {
			t.Fatal(err)
		}
	}
	// Not running yet: all three gather.
	for _, c := range []string{"c1", "c2", "c3"} {
		if err := b.Del(ctx, key(c), nil); err != nil {
			t.Fatal(err)
		}
		if rec, _ := b.record(c); rec.Phase != facts.Releasing {
			t.Errorf("%s is in phase %s", c, rec.Phase)
		}
	}
	if len(b.used()) != 3 {
		t.Error("an address is free while its interface exists")
	}
	b.kernel.calls = nil
	go b.Reaper.Run(b.Engine)
	b.Reaper.Close()
	if got := strings.Count(strings.Join(b.kernel.calls, " "), "detach-all"); got != 1 {
		t.Errorf("%d batches for three interfaces: %v", got, b.kernel.calls)
	}
	if len(failed) > 0 {
		t.Errorf("failures: %v", failed)
	}
	b.clean()
	// After Close a DEL still records, and the next start finishes it.
	if _, err := b.Add(ctx, b.request("c4")); err != nil {
		t.Fatal(err)
	}
	if err := b.Del(ctx, key("c4"), nil); err != nil {
		t.Fatal(err)
	}
	b.Reaper = nil
	wantActions(t, b.sweep(), "c4 undone")
	b.clean()
}

func TestReaperFallsBackToOneByOne(t *testing.T) {
	b := newBench(t)
	b.Node = func() kernel.Node { return kernel.Node{} }
	var failed []attach.Key
	b.Reaper = NewReaper(func(k attach.Key, _ error) { failed = append(failed, k) })
	for _, c := range []string{"c1", "c2"} {
		if _, err := b.Add(ctx, b.request(c)); err != nil {
			t.Fatal(err)
		}
		if err := b.Del(ctx, key(c), nil); err != nil {
			t.Fatal(err)
		}
	}
	detached := 0
	b.kernel.fail = func(op string) failure {
		if op == "detach" {
			detached++
		}
		if op == "detach-all" || (op == "detach" && detached == 1) {
			return failBefore
		}
		return succeed
	}
	go b.Reaper.Run(b.Engine)
	b.Reaper.Close()
	if len(failed) != 1 || len(b.used()) != 1 {
		t.Errorf("failed %v, used %v", failed, b.used())
	}
}

// ownedThen lets something happen between the dump of the interfaces and the
// lock of the first key.
type ownedThen struct {
	*fakeKernel
	then func()
}

func (k ownedThen) Owned() ([]kernel.Owned, error) {
	owned, err := k.fakeKernel.Owned()
	k.then()
	return owned, err
}

func TestAdoptIgnoresWhatEndedMeanwhile(t *testing.T) {
	b := newBench(t)
	b.attached("c1")
	b.Kernel = ownedThen{b.kernel, func() {
		if err := b.Del(ctx, key("c1"), nil); err != nil {
			t.Fatal(err)
		}
	}}
	if findings, err := b.Adopt(ctx); err != nil || len(findings) != 0 {
		t.Errorf("adopted %v, %v", findings, err)
	}
	b.clean()
}

// An address whose DEL has been answered is worth waiting for: a StatefulSet's
// pod comes back with the one that it had.
func TestAddWaitsForAnAddressOnItsWay(t *testing.T) {
	b := newBench(t)
	b.Node = func() kernel.Node { return kernel.Node{} }
	if _, err := b.Add(ctx, b.request("c1")); err != nil {
		t.Fatal(err)
	}
	used := b.used()
	b.Reaper = NewReaper(func(k attach.Key, err error) { t.Errorf("%s: %v", k, err) })
	if err := b.Del(ctx, key("c1"), nil); err != nil {
		t.Fatal(err)
	}
	r := b.request("c2")
	r.Want = used
	added := make(chan error)
	go func() {
		_, err := b.Add(ctx, r)
		added <- err
	}()
	go b.Reaper.Run(b.Engine)
	if err := <-added; err != nil {
		t.Errorf("DEL was answered, yet: %v", err)
	}
	b.Reaper.Close()
	if b.Reaper.drain(ctx) {
		t.Error("an empty Reaper had something to wait for")
	}
}

func TestEvidence(t *testing.T) {
	b := newBench(t)
	path := b.attached("c1")
	rec, _ := b.record("c1")
	for _, c := range []struct {
		name string
		do   func()
		want Evidence
	}{
		{"alive", func() {}, Evidence{Namespace: true, Link: true}},
		{"unmounted, but in use", func() { _ = os.Remove(path) }, Evidence{Link: true}},
		{"dead", func() { delete(b.kernel.links, key("c1").HostIfname()) }, Evidence{}},
	} {
		c.do()
		if ev, err := Witness(rec, b.kernel, true); err != nil || ev != c.want || ev.Dead() != (c.want == Evidence{}) {
			t.Errorf("%s: %v, %v", c.name, ev, err)
		}
	}
}
