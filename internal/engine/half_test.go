// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"os"
	"testing"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/kernel"
)

// half turns a complete attachment into what a killed ADD leaves: an intent,
// and whatever is in the kernel. It returns the sandbox's path.
func (b *bench) half(container string) (sandboxPath string) {
	b.t.Helper()
	path := b.attached(container)
	err := b.store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		rec, _ := f.Get(key(container))
		d, err := rec.Detail()
		if err != nil {
			return nil, err
		}
		entry, err := facts.EncodeIntent(b.now(), key(container), facts.Veth, rec.Addresses, d)
		return []string{entry}, err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return path
}

// The restarted agent must not give the address of a killed ADD away while the
// runtime may repeat the call.
func TestSweepKeepsTheAddressOfAnAddThatMayBeRepeated(t *testing.T) {
	b := newBench(t)
	b.half("c1")
	before := b.used()
	wantActions(t, b.sweep(), "c1 undone, but for the address")
	if len(b.kernel.links) != 0 {
		t.Errorf("the kernel still has %v", b.kernel.links)
	}
	wantActions(t, b.sweep()) // nothing is left to do
	a, err := b.Add(ctx, b.request("c1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Spec.Addresses[0].Addr; len(before) != 1 || got != before[0] {
		t.Errorf("the repeated ADD got %s, the intent was %v", got, before)
	}
}

func TestSweepEndsAHalfDoneAddWithItsSandbox(t *testing.T) {
	b := newBench(t)
	path := b.half("c1")
	wantActions(t, b.sweep(), "c1 undone, but for the address")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantActions(t, b.sweep(), "c1 undone")
	b.clean()
}

// A release that a process began and did not finish does not stand in the way
// of the next ADD.
func TestReservationWhoseReleaseDiedIsReplaced(t *testing.T) {
	b := newBench(t)
	req := ReserveRequest{Key: key("c1"), Network: testNetwork(t, "10.0.0.0/24"), Netns: "/n", NetnsID: kernel.NetnsID{Dev: 1, Ino: 2}}
	if _, err := b.Reserve(ctx, req); err != nil {
		t.Fatal(err)
	}
	entry, err := facts.EncodeReleasing(b.now(), key("c1"))
	if err := b.append1(ctx, entry, err); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(ctx, req); err != nil {
		t.Fatalf("the next reservation answered %v", err)
	}
	if rec, found := b.record("c1"); !found || rec.Phase != facts.Complete {
		t.Errorf("the record is in phase %s", rec.Phase)
	}
}
