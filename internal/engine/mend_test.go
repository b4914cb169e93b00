// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"slices"
	"testing"

	"weft.dev/weft/internal/core/attach"
)

func TestMend(t *testing.T) {
	b := newBench(t)
	for _, c := range []string{"whole", "robbed", "going"} {
		if _, err := b.Add(ctx, b.request(c)); err != nil {
			t.Fatal(err)
		}
	}
	rob := func(container string) {
		p := b.kernel.links[key(container).HostIfname()]
		p.HostRoutes = nil
		b.kernel.links[key(container).HostIfname()] = p
	}
	rob("robbed")
	rob("going")
	unlock, err := b.Store.LockKey(ctx, key("going").String())
	if err != nil {
		t.Fatal(err)
	}
	mended, err := b.Mend(ctx)
	unlock()
	if err != nil || !slices.Equal(mended, []attach.Key{key("robbed")}) {
		t.Errorf("mended %v, %v; want the one that was robbed and that nobody is at work on", mended, err)
	}
	if got := b.kernel.links[key("robbed").HostIfname()].HostRoutes; len(got) != 1 {
		t.Errorf("routes %v", got)
	}
	b.kernel.fail = func(op string) failure {
		if op == "mend" {
			return failBefore
		}
		return succeed
	}
	if _, err := b.Mend(ctx); !errors.Is(err, errInjected) {
		t.Errorf("error %v", err)
	}
}
