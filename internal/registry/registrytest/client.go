// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"context"
	"errors"
	"fmt"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

// Call is one call of a client.
type Call struct {
	Verb  string // "create", "replace" or "delete"
	Lease cluster.Lease
}

// Fault is what goes wrong with a call.
type Fault int

// Faults.
const (
	None       Fault = iota
	Lost             // it never happens, and the client gets an error
	Unanswered       // it happens if it can, and the client gets an error nevertheless
	Untried          // it never happens, and the client is told so (registry.ErrUntried)
)

// ErrFault is what a client gets for a call that went wrong.
var ErrFault = errors.New("the registry does not answer")

// Client is the writing side as one node has it.
type Client struct {
	registry *Registry
	fault    func(Call) Fault
}

var _ registry.Leases = (*Client)(nil)

// Client returns a client. fault is asked at every call and may be nil; what it
// does itself, such as stopping the node, happens before the call.
func (r *Registry) Client(fault func(Call) Fault) *Client { return &Client{r, fault} }

// Create implements registry.Leases.
func (c *Client) Create(ctx context.Context, l cluster.Lease) error {
	return c.call(ctx, Call{"create", l}, c.registry.Create)
}

// Replace implements registry.Leases.
func (c *Client) Replace(ctx context.Context, l cluster.Lease) error {
	return c.call(ctx, Call{"replace", l}, c.registry.Replace)
}

// Delete implements registry.Leases.
func (c *Client) Delete(ctx context.Context, l cluster.Lease) error {
	return c.call(ctx, Call{"delete", l}, c.registry.Delete)
}

// Do makes a call of any verb.
func (c *Client) Do(ctx context.Context, call Call) error {
	switch call.Verb {
	case "create":
		return c.Create(ctx, call.Lease)
	case "replace":
		return c.Replace(ctx, call.Lease)
	case "delete":
		return c.Delete(ctx, call.Lease)
	}
	return errors.New("unknown verb " + call.Verb)
}

func (c *Client) call(ctx context.Context, call Call, do func(cluster.Lease) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fault := None
	if c.fault != nil {
		fault = c.fault(call)
	}
	switch fault {
	case Lost:
		return ErrFault
	case Untried:
		return fmt.Errorf("%w: %w", registry.ErrUntried, ErrFault)
	case Unanswered:
		_ = do(call.Lease) // the client never learns how it ended
		return ErrFault
	default:
		return do(call.Lease)
	}
}
