// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"weft.dev/weft/internal/core/facts"
)

// Two attachments that are removed at the same time are both recorded as
// releasing before either ends. Each must take itself for the last one.
func TestNodeObjectsGoWithTheLastTwoAttachments(t *testing.T) {
	for _, c := range []struct {
		name  string
		phase facts.Phase
		last  bool
	}{
		{"the other one stays", facts.Complete, false},
		{"the other one goes too", facts.Releasing, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			for _, container := range []string{"c1", "c2"} {
				if _, err := b.Add(ctx, b.request(container)); err != nil {
					t.Fatal(err)
				}
			}
			err := b.store.Update(ctx, func(*facts.Facts) ([]string, error) {
				one, err := facts.EncodeReleasing(b.now(), key("c1"))
				if c.phase != facts.Releasing || err != nil {
					return []string{one}, err
				}
				two, err := facts.EncodeReleasing(b.now(), key("c2"))
				return []string{one, two}, err
			})
			if err != nil {
				t.Fatal(err)
			}
			err = b.store.View(ctx, func(f *facts.Facts) error {
				rec, _ := f.Get(key("c1"))
				node, last, err := lastNodeOf(f, rec)
				if last != c.last {
					t.Errorf("last is %t, want %t", last, c.last)
				}
				if last && (node.Table == "" || len(node.Gateways) == 0) {
					t.Errorf("nothing to remove: %+v", node)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
