// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/registrytest"
)

// A simulation that cannot fail shows nothing: every mistake here breaks a
// rule, and that is noticed.
func TestMistakesAreNoticed(t *testing.T) {
	wrapped := func(wrap func(*node, registry.Leases) registry.Leases) mutant { return mutant{leases: wrap} }
	for name, c := range map[string]struct {
		mutant mutant
		notice string // what is said of it; one of these
	}{
		"delete by name":              {wrapped(func(n *node, l registry.Leases) registry.Leases { return byName{l, n} }), " use"},
		"create over another":         {wrapped(func(n *node, l registry.Leases) registry.Leases { return greedy{l, n} }), " use"},
		"serve before the claim":      {wrapped(func(n *node, l registry.Leases) registry.Leases { return hurried{l, n} }), " use"},
		"no answer is taken for yes":  {wrapped(func(_ *node, l registry.Leases) registry.Leases { return hopeful{l} }), " use"},
		"draining blocks forgotten":   {mutant{drain: true}, "while pods have addresses of it"},
		"half a view is called whole": {mutant{hasty: true}, "of the first view missing"},
		"strangers' things shown":     {mutant{nosy: true}, "never its own"},
		"deletions dropped":           {mutant{careless: true}, "wanted: false"},
		"a store goes back":           {mutant{backward: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for s := uint64(1); s <= 12; s++ {
				_, err := Run(Options{Seed: s, Nodes: 25, Events: 15_000, Tight: true, mutant: c.mutant})
				if err == nil {
					continue
				}
				what, _, _ := strings.Cut(err.Error(), "\n")
				if !strings.Contains(what, c.notice) {
					t.Fatalf("seed %d: %s; want %q", s, what, c.notice)
				}
				t.Logf("seed %d: %s", s, what)
				return
			}
			t.Fatal("nobody noticed")
		})
	}
}

// byName deletes whatever lease has the name.
type byName struct {
	registry.Leases
	node *node
}

func (b byName) Delete(ctx context.Context, l cluster.Lease) error {
	if now, there := b.node.w.registry.Lease(l.Name()); there {
		l.UID = now.UID
	}
	return b.Leases.Delete(ctx, l)
}

// greedy creates a lease though there is one.
type greedy struct {
	registry.Leases
	node *node
}

func (g greedy) Create(ctx context.Context, l cluster.Lease) error {
	if now, there := g.node.w.registry.Lease(l.Name()); there {
		_ = g.node.w.write(g.node, registrytest.Call{Verb: "delete", Lease: now})
	}
	return g.Leases.Create(ctx, l)
}

// hurried gives addresses from a block before it is claimed.
type hurried struct {
	registry.Leases
	node *node
}

func (h hurried) Create(ctx context.Context, l cluster.Lease) error {
	_ = h.node.ipam.Serve(ctx, append(h.node.keeper.Status().Held, l))
	return h.Leases.Create(ctx, l)
}

// hopeful believes that what was not answered has happened.
type hopeful struct{ registry.Leases }

func (h hopeful) Create(ctx context.Context, l cluster.Lease) error {
	if err := h.Leases.Create(ctx, l); !errors.Is(err, registrytest.ErrFault) {
		return err
	}
	return nil
}
