// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/registrytest"
)

// calls is the writing side of the registry as one process has it.
type calls struct{ n *node }

var _ registry.Leases = calls{}

func (n *node) leases() registry.Leases {
	if wrap := n.w.options.mutant.leases; wrap != nil {
		return wrap(n, calls{n})
	}
	return calls{n}
}

// Create implements registry.Leases.
func (c calls) Create(_ context.Context, l cluster.Lease) error {
	c.n.w.checkClaim(c.n, l)
	return c.call(registrytest.Call{Verb: "create", Lease: l})
}

// Replace implements registry.Leases.
func (c calls) Replace(_ context.Context, l cluster.Lease) error {
	return c.call(registrytest.Call{Verb: "replace", Lease: l})
}

// Delete implements registry.Leases.
func (c calls) Delete(_ context.Context, l cluster.Lease) error {
	c.n.w.checkRelease(c.n, l)
	return c.call(registrytest.Call{Verb: "delete", Lease: l})
}

// call makes the call, unless something goes wrong.
func (c calls) call(call registrytest.Call) error {
	n, w := c.n, c.n.w
	if n.dying || !n.contact {
		return registrytest.ErrFault
	}
	fault, odds := "none", 12
	if call.Verb == "delete" {
		odds = 2 // there are few, and they are the dangerous ones
	}
	if w.chance(odds) {
		fault = pick(w, "lost", "unanswered", "late", "dies before", "dies after")
		w.trace.add(w.now, "  %s's %s of %s: %s", n.name, call.Verb, call.Lease.Name(), fault)
	}
	switch fault {
	case "none":
		return w.write(n, call)
	case "unanswered":
		_ = w.write(n, call)
	case "late":
		// It happens while the process that made it lives: its connection ends
		// with it.
		n.after(w.between(0, 40*time.Second), "is late", func() { _ = w.write(n, call) })
	case "dies before":
		n.dying = true
	case "dies after":
		_ = w.write(n, call)
		n.dying = true
	}
	return registrytest.ErrFault
}
